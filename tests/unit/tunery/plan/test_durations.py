"""Expected time of work, from ended work and from its own progress."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.training import ExpectedTime
from tunery.plan.durations import (
    CLASSES_MAX,
    RATIOS_PPM,
    SAMPLES_MAX,
    SAMPLES_MIN,
    STEPS_MIN,
    History,
    expect,
    follow,
    learn,
)

HOUR = 3_600_000
LIMIT = 30 * HOUR
ESTIMATED = ExpectedTime(p50_ms=HOUR, p90_ms=3 * HOUR)


def learnt(*took_ms: int, name: str = "base") -> History:
    history = History()
    for at, each in enumerate(took_ms):
        history = learn(history, (name,), HOUR, each, at)
    return history


def test_few_samples_teach_nothing() -> None:
    history = learnt(*[HOUR // 2] * (SAMPLES_MIN - 1))
    assert expect(history, ("base",), HOUR, LIMIT) is None
    history = learn(history, ("base",), HOUR, HOUR // 2, 9)
    assert expect(history, ("other",), HOUR, LIMIT) is None
    assert expect(history, ("other", "base"), HOUR, LIMIT) is not None


def test_half_and_nine_of_ten_took_no_longer() -> None:
    history = learnt(*[HOUR // 2] * 6, *[HOUR] * 3, 4 * HOUR)
    assert expect(history, ("base",), 10 * HOUR, LIMIT) == ExpectedTime(
        p50_ms=5 * HOUR, p90_ms=10 * HOUR
    )


def test_the_narrowest_class_that_knows_enough_decides() -> None:
    history = learnt(*[HOUR] * 8, name="wide")
    for at in range(8):
        history = learn(history, ("narrow",), HOUR, 2 * HOUR, at)
    expected = expect(history, ("narrow", "wide"), HOUR, LIMIT)
    assert expected == ExpectedTime(p50_ms=2 * HOUR, p90_ms=2 * HOUR)


def test_what_the_user_allows_bounds_what_is_expected() -> None:
    history = learnt(*[20 * HOUR] * 8)
    assert expect(history, ("base",), HOUR, 2 * HOUR) == ExpectedTime(
        p50_ms=2 * HOUR, p90_ms=2 * HOUR
    )
    slow = follow(ESTIMATED, 2 * HOUR, HOUR, 0, 10_000, 20)
    assert slow == ExpectedTime(p50_ms=2 * HOUR, p90_ms=2 * HOUR)


def test_what_is_new_weighs_more() -> None:
    history = learnt(*[HOUR // 2] * 10 * SAMPLES_MAX, *[2 * HOUR] * SAMPLES_MAX)
    expected = expect(history, ("base",), HOUR, LIMIT)
    assert expected is not None
    assert expected.p50_ms == 2 * HOUR


def test_the_table_is_bounded_and_forgets_the_oldest_class() -> None:
    history = History()
    for number in range(CLASSES_MAX + 1):
        history = learn(history, (f"base {number}",), HOUR, HOUR, number)
    assert len(history) == CLASSES_MAX
    assert "base 0" not in history
    assert learn(history, ("free",), 0, HOUR, 0) is history, "no estimate, no ratio"


def test_the_steps_that_were_done_tell_how_long_the_others_take() -> None:
    half = follow(ESTIMATED, LIMIT, HOUR, 0, 200, 100)
    assert half.p50_ms == 2 * HOUR + 30_000
    assert 2 * HOUR + HOUR // 4 < half.p90_ms < 2 * HOUR + HOUR // 3
    assert follow(ESTIMATED, LIMIT, HOUR, 0, 200, STEPS_MIN - 1) == ESTIMATED
    assert follow(ESTIMATED, LIMIT, HOUR, 0, 0, 0) == ESTIMATED, "an evaluation has no steps"


def test_an_attempt_that_begins_with_a_checkpoint_takes_less() -> None:
    rest = follow(ESTIMATED, LIMIT, 0, 750, 250, 0)
    assert rest == ExpectedTime(p50_ms=HOUR // 4, p90_ms=3 * HOUR // 4)


@given(
    took=st.lists(st.integers(0, 10**14), max_size=300),
    estimate_ms=st.integers(0, 10**12),
    limit_ms=st.integers(1, 10**12),
)
def test_expected_times_are_in_order_and_within_the_limit(
    took: list[int], estimate_ms: int, limit_ms: int
) -> None:
    history = History()
    for each in took:
        history = learn(history, ("base",), estimate_ms, each, 0)
    expected = expect(history, ("base",), estimate_ms, limit_ms)
    if expected is not None:
        assert 1 <= expected.p50_ms <= expected.p90_ms <= limit_ms
    assert all(len(known.counts) == len(RATIOS_PPM) for known in history.values())
    assert all(known.samples < SAMPLES_MAX for known in history.values())


@settings(max_examples=2 * settings().max_examples)
@given(
    elapsed_ms=st.integers(0, 10**11),
    first=st.integers(0, 10**6),
    steps=st.integers(0, 10**6),
    done=st.integers(0, 2 * 10**6),
)
def test_what_runs_is_expected_to_end_after_its_last_checkpoint_or_at_its_limit(
    elapsed_ms: int, first: int, steps: int, done: int
) -> None:
    expected = follow(ESTIMATED, LIMIT, elapsed_ms, first, steps, done)
    assert 0 <= expected.p50_ms <= expected.p90_ms <= LIMIT
    if steps and done >= STEPS_MIN:
        assert expected.p50_ms > elapsed_ms or expected.p50_ms == LIMIT
