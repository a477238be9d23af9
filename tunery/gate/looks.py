"""Interim analyses ("looks") of the same items, without more false alarms than one analysis.

A test that is made at each of five looks at the level of 5 % errs in 14 % of the cases. Each look
therefore has its own level, which together spend what one look may.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import erfc, exp, pi, sqrt
from statistics import NormalDist
from typing import Final

from schemas.units import PPM

NORMAL: Final = NormalDist()
LOOKS_MAX: Final = 10
LOOK_ITEMS_MIN: Final = 1_000  # of a benchmark that has so many
GRID: Final = 240  # intervals of the numerical integration, an even number
LOWEST: Final = -8.0  # standard deviations below which nothing is integrated
BISECTIONS: Final = 50


def items_at(share_ppm: int, items: int) -> int:
    """Return how many of a benchmark's items are asked up to the look at this share.

    A benchmark that is ahead of the plan keeps its error: the scores of its looks are correlated
    more closely than planned, and cross the same boundaries less often (Slepian 1962).
    """
    return min(items, max(LOOK_ITEMS_MIN, -(-items * share_ppm // PPM)))


def planned_looks(shares_ppm: Sequence[int], items: Iterable[int]) -> tuple[int, ...]:
    """Return the shares of interim analyses that have new items; empty: all items at once.

    shares_ppm: shares of the items, in millionths, rising to all. items: number of each benchmark.
    """
    sizes = tuple(items)
    asked = {tuple(items_at(share, size) for size in sizes): share for share in shares_ppm}
    return tuple(asked.values()) if len(asked) > 1 else ()


def spent(fraction: float, alpha: float) -> float:
    """Return how much of alpha is spent once this fraction of the items has been looked at.

    2 - 2 * Phi(z_(alpha/2) / sqrt(fraction)): the spending function of the O'Brien-Fleming kind of
    Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials", one-sided. It
    spends next to nothing early, so that the last look is almost as sharp as a single one.
    """
    return 2 - 2 * NORMAL.cdf(NORMAL.inv_cdf(1 - alpha / 2) / sqrt(fraction))


@lru_cache(maxsize=64)
def levels(fractions: tuple[float, ...], alpha: float) -> tuple[float, ...]:
    """One-sided level of each look: a p-value below it shows the effect.

    fractions: share of all planned items at each look, rising, the last 1.
    Armitage, McPherson and Rowe (1969), "Repeated significance tests on accumulating data": the
    density of the score that has crossed no boundary is integrated from look to look, and each
    boundary is where the chance of crossing it first is what this look may spend.
    Raises ValueError for fractions that do not rise to 1, or more than LOOKS_MAX of them.
    """
    rising = all(before < after for before, after in pairwise((0.0, *fractions)))
    if not fractions or len(fractions) > LOOKS_MAX or not rising or fractions[-1] != 1:
        raise ValueError(f"looks at {fractions}: give 1 to {LOOKS_MAX} rising shares, the last 1")
    result = [spent(fractions[0], alpha)]
    boundary = NORMAL.inv_cdf(1 - result[0]) * sqrt(fractions[0])
    points, weights = _density_of_first(boundary, fractions[0])
    for before, now in pairwise(fractions):
        spread = sqrt(now - before)
        due = spent(now, alpha) - spent(before, alpha)
        boundary = _boundary(points, weights, spread, due, sqrt(now))
        result.append(_tail(boundary / sqrt(now)))
        points, weights = _density_of_next(points, weights, spread, boundary, sqrt(now))
    return tuple(result)


def _tail(z: float) -> float:
    return 0.5 * erfc(z / sqrt(2))


def _simpson(
    low: float, high: float, density: Callable[[float], float]
) -> tuple[list[float], list[float]]:
    """Points, and the probability that belongs to each of them."""
    step = (high - low) / GRID
    points = [low + step * at for at in range(GRID + 1)]
    factors = [1, *(4 if at % 2 else 2 for at in range(1, GRID)), 1]
    shares = [
        factor * step / 3 * density(point) for factor, point in zip(factors, points, strict=True)
    ]
    return points, shares


def _normal_density(distance: float, spread: float) -> float:
    return exp(-0.5 * (distance / spread) ** 2) / (spread * sqrt(2 * pi))


def _density_of_first(boundary: float, fraction: float) -> tuple[list[float], list[float]]:
    spread = sqrt(fraction)
    return _simpson(LOWEST * spread, boundary, lambda score: _normal_density(score, spread))


def _density_of_next(
    points: Sequence[float],
    weights: Sequence[float],
    spread: float,
    boundary: float,
    deviation: float,
) -> tuple[list[float], list[float]]:
    def density(score: float) -> float:
        return sum(
            weight * _normal_density(score - point, spread)
            for point, weight in zip(points, weights, strict=True)
        )

    return _simpson(LOWEST * deviation, boundary, density)


def _boundary(
    points: Sequence[float],
    weights: Sequence[float],
    spread: float,
    due: float,
    deviation: float,
) -> float:
    """Return the score that is crossed now, and not before, with the probability `due`."""
    low, high = 0.0, -LOWEST * deviation
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        crossed = sum(
            weight * _tail((middle - point) / spread)
            for point, weight in zip(points, weights, strict=True)
        )
        low, high = (middle, high) if crossed > due else (low, middle)
    return (low + high) / 2
