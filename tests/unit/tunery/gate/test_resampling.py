"""The bootstrap by groups: the same each time, as wide as the normal interval, wider by groups."""

from random import Random
from statistics import stdev

import pytest

from tunery.gate.resampling import paired_interval

DRAW = Random(3)
DIFFERENCES = [DRAW.gauss(0.2, 1.0) for _ in range(150)]
ALONE = [str(at) for at in range(150)]


def test_the_same_scores_give_the_same_interval() -> None:
    first = paired_interval(DIFFERENCES, ALONE, resamples=200)
    assert first == paired_interval(DIFFERENCES, ALONE, resamples=200)
    assert first.mean == pytest.approx(sum(DIFFERENCES) / 150)


def test_the_interval_is_the_normal_one_where_items_are_independent() -> None:
    interval = paired_interval(DIFFERENCES, ALONE)
    half = 1.96 * stdev(DIFFERENCES) / 150**0.5
    assert interval.low == pytest.approx(interval.mean - half, abs=0.15 * half)
    assert interval.high == pytest.approx(interval.mean + half, abs=0.15 * half)


def test_items_of_a_group_that_are_alike_widen_the_interval() -> None:
    """30 passages with 5 questions each that go wrong together: 5 ** 0.5 times as wide."""
    alike = [value for value in DIFFERENCES[:30] for _ in range(5)]
    groups = [str(at // 5) for at in range(150)]
    one_by_one = paired_interval(alike, ALONE, resamples=500)
    by_group = paired_interval(alike, groups, resamples=500)
    wider = (by_group.high - by_group.low) / (one_by_one.high - one_by_one.low)
    assert wider == pytest.approx(5**0.5, rel=0.2)


def test_nothing_to_draw_from_is_refused() -> None:
    with pytest.raises(ValueError, match="give at least one"):
        paired_interval([], [])
