"""Bootstrap: confidence interval of a mean difference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from struct import unpack
from typing import Final

RESAMPLES: Final = 2_000
KEY: Final = b"tunery.gate"  # the same scores always give the same interval, in every Python
DRAWN_BITS: Final = 32


@dataclass(frozen=True)
class Interval:
    """A mean difference with the bounds of its two-sided interval."""

    mean: float
    low: float
    high: float


def paired_interval(
    differences: Sequence[float],
    groups: Sequence[str],
    alpha: float = 0.05,
    resamples: int = RESAMPLES,
) -> Interval:
    """Percentile interval of the mean of paired differences, at the level 1 - alpha.

    groups: group of each item; a group is drawn as a whole

    Items that share a passage or a subject are alike, and an interval that draws them one by one is
    too narrow: Miller (2024), "Adding error bars to evals". Efron and Tibshirani (1993), "An
    introduction to the bootstrap", chapter 13. Raises ValueError without differences.
    """
    means = resampled_means(differences, groups, resamples)
    return Interval(
        mean=sum(differences) / len(differences),
        low=quantile(means, alpha / 2),
        high=quantile(means, 1 - alpha / 2),
    )


def resampled_means(
    differences: Sequence[float], groups: Sequence[str], resamples: int = RESAMPLES
) -> list[float]:
    """The mean of each resample, rising; groups are drawn as a whole. Raises ValueError."""
    if not differences:
        raise ValueError("there are no differences to draw from; give at least one")
    sums: dict[str, tuple[float, int]] = {}
    for difference, group in zip(differences, groups, strict=True):
        total, items = sums.get(group, (0.0, 0))
        sums[group] = (total + difference, items + 1)
    clusters = list(sums.values())
    draws = _draws()
    return sorted(_mean_of_sample(clusters, draws) for _ in range(resamples))


def _draws() -> Iterator[int]:
    """Numbers of DRAWN_BITS bits from a keyed hash of a counter, evenly spread."""
    for number in count():
        yield from unpack("<16I", blake2b(number.to_bytes(8, "big"), key=KEY).digest())


def _mean_of_sample(clusters: Sequence[tuple[float, int]], draws: Iterator[int]) -> float:
    size = len(clusters)
    chosen = [clusters[size * next(draws) >> DRAWN_BITS] for _ in range(size)]
    return sum(total for total, _ in chosen) / sum(items for _, items in chosen)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ascending values: linear between the two nearest, as numpy and R (type
    7).
    """
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
