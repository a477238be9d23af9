"""Exact McNemar and bounds: known values, exact sums, and what they promise."""

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.gate.paired import (
    discordant_share,
    drop_upper_bound,
    items_needed,
    mcnemar_worse,
    smallest_drop,
)


def test_mcnemar_known_values() -> None:
    assert mcnemar_worse(0, 0) == 1.0
    assert mcnemar_worse(5, 0) == pytest.approx(1 / 32)
    assert mcnemar_worse(8, 2) == pytest.approx((comb(10, 8) + comb(10, 9) + 1) / 1024)


@pytest.mark.parametrize(("worse", "better"), [(1, 0), (7, 12), (40, 5), (300, 260), (0, 9)])
def test_mcnemar_is_the_upper_tail_of_the_binomial_distribution(worse: int, better: int) -> None:
    items = worse + better
    tail = Fraction(sum(comb(items, k) for k in range(worse, items + 1)), 2**items)
    assert mcnemar_worse(worse, better) == pytest.approx(float(tail), rel=1e-9)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_a_probability_and_falls_with_more_losses(worse: int, better: int) -> None:
    p = mcnemar_worse(worse, better)
    more = mcnemar_worse(worse + 1, better)
    assert 0 < p <= 1
    assert more < p or p == more == 1.0  # a float cannot tell the last few from certainty


@given(st.integers(0, 80), st.integers(0, 80), st.integers(200, 1000))
def test_upper_bound_lies_above_the_drop(worse: int, better: int, n: int) -> None:
    assert drop_upper_bound(worse, better, n) > (worse - better) / (n + 2)
    assert drop_upper_bound(worse, better, n, 0.01) > drop_upper_bound(worse, better, n)


@pytest.mark.parametrize(
    ("items", "points"), [(200, 5.6), (500, 3.5), (1_172, 2.3), (2_000, 1.8), (14_042, 0.66)]
)
def test_the_smallest_drop_that_items_show_when_a_tenth_of_them_changed(
    items: int, points: float
) -> None:
    assert 100 * smallest_drop(0.10, items, 0.05) == pytest.approx(points, rel=0.03)


def test_two_points_need_about_two_thousand_items() -> None:
    assert items_needed(0.13, 0.02, 0.05) == pytest.approx(2_000, rel=0.01)
    assert smallest_drop(0.13, items_needed(0.13, 0.02, 0.05), 0.05) <= 0.02


def test_the_discordant_share_is_never_nothing() -> None:
    assert discordant_share(0, 0, 0) == 0.5
    assert discordant_share(10, 8, 248) == pytest.approx(0.076)
