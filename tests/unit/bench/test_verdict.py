"""Figures of the benchmark of short jobs."""

from bench.verdict import Times, figures


def test_figures_are_medians_and_the_share_of_the_gate() -> None:
    times = [Times(30.0, 3.0, 10.0, 8.0), Times(20.0, 2.0, 12.0, 9.0), Times(21.04, 2.5, 11.0, 6.6)]
    expected = {"verdict_s": 21.04, "first_step_s": 2.5, "training_s": 11.0, "gate_s": 8.0}
    assert figures(times) == {**expected, "gate_share": 0.73}
