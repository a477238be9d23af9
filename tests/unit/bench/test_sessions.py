"""Figures of the benchmark that compares steps of a session with those of a job."""

from bench.sessions import figures


def test_figures_are_for_a_thousand_tokens_and_compare_the_two() -> None:
    step_s = 2_000 * 11.5 / 1_000  # at 11.5 s for a thousand
    twice_as_slow = [2 * step_s, 2 * step_s]
    measured = figures([10_000.0], [step_s, step_s, 10 * step_s], 3.25, [twice_as_slow] * 4, 2_000)
    assert measured == {
        "job_ms": 10_000.0,
        "session_ms": 11_500.0,
        "overhead_percent": 15.0,
        "first_s": 3.25,
        "models": 4,
        "models_ratio": 2.0,
    }
