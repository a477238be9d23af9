"""Levels of sequential looks: the published boundaries, and the error that they allow."""

from random import Random
from statistics import NormalDist

import pytest

from tunery.gate.looks import LOOKS_MAX, items_at, levels, planned_looks, spent

FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)
HALVES = (0.5, 1.0)
SCORES = NormalDist()


def test_five_looks_have_the_published_boundaries() -> None:
    """O'Brien-Fleming spending function: Lan and DeMets (1983), Jennison and Turnbull."""
    scores = [SCORES.inv_cdf(1 - level) for level in levels(FIFTHS, 0.025)]
    assert scores == pytest.approx([4.8769, 3.3569, 2.6803, 2.2898, 2.0310], abs=2e-4)


def test_one_look_spends_all() -> None:
    assert levels((1.0,), 0.05) == pytest.approx((0.05,))
    assert spent(1.0, 0.05) == pytest.approx(0.05)


def test_an_early_look_spends_little() -> None:
    assert spent(0.2, 0.05) < 0.0001
    assert levels(HALVES, 0.05)[-1] > 0.045


def test_all_looks_together_err_as_often_as_one_may() -> None:
    """A score without drift, looked at twice: 20,000 of them, drawn with a seed."""
    draw, (first, last) = Random(7), (SCORES.inv_cdf(1 - p) for p in levels(HALVES, 0.05))
    crossed = 0
    for _ in range(20_000):
        half = draw.gauss(0, 0.5**0.5)
        crossed += half / 0.5**0.5 > first or half + draw.gauss(0, 0.5**0.5) > last
    assert crossed / 20_000 == pytest.approx(0.05, abs=0.004)


@pytest.mark.parametrize(
    "fractions", [(), (0.5,), (0.5, 0.5, 1.0), (0.6, 0.4, 1.0), tuple(range(LOOKS_MAX + 1))]
)
def test_looks_that_do_not_rise_to_one_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="rising shares"):
        levels(fractions, 0.05)


QUARTERS = (250_000, 500_000, 1_000_000)


@pytest.mark.parametrize(
    ("items", "planned", "asked"),
    [
        ((), (), []),
        ((249, 1_000), (), []),
        ((2_000,), (500_000, 1_000_000), [1_000, 2_000]),
        ((1_500, 4_000), QUARTERS, [1_000, 1_000, 1_500]),
    ],
)
def test_small_benchmarks_are_asked_at_once_and_no_look_asks_nothing_new(
    items: tuple[int, ...], planned: tuple[int, ...], asked: list[int]
) -> None:
    assert planned_looks(QUARTERS, items) == planned
    assert [items_at(share, items[0]) for share in planned] == asked
