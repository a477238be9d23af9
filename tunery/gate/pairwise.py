"""Pairs of answers that a judge saw in both orders: who won, what its position did, and bounds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist
from typing import Final

from tunery.work.scores import JudgedPair

FIRST: Final = "A"
SECOND: Final = "B"
TIE: Final = "tie"
UNREADABLE: Final = ""
LABELS: Final = ("a", "b", TIE)
CONFIDENCE: Final = 0.95  # of one-sided bounds
AGREEMENT_MIN: Final = 0.7  # lower bound of a judge's agreement with its labels
POSITION_MAX: Final = 0.2  # share of labelled pairs that their order alone decides
HALVINGS: Final = 40  # of an interval from 0 to 1


@dataclass(frozen=True)
class PairCounts:
    """Counts of pairs, each judged in both orders."""

    pairs: int
    # a, b: pairs that the answer of that side won in both orders
    a: int
    b: int
    ties: int  # all other pairs
    inconsistent: int  # ties whose two verdicts differ
    unreadable: int  # ties with a verdict that says nothing
    # first, second: inconsistent pairs in which the same position won both times
    first: int
    second: int


@dataclass(frozen=True)
class Qualification:
    """Agreement of a judge with labelled pairs, as shares."""

    pairs: int
    agreement: float
    agreement_low: float  # lower Wilson bound of the agreement at 95 %
    position: float  # pairs that their order alone decided

    @property
    def is_met(self) -> bool:
        """Return whether the judge agrees with people enough for its verdicts to count."""
        return self.agreement_low >= AGREEMENT_MIN and self.position <= POSITION_MAX


def winner(pair: JudgedPair) -> str:
    """`a`, `b` or `tie`: what wins in one order alone is a tie. Zheng et al. (2023), MT-Bench."""
    return {(FIRST, SECOND): "a", (SECOND, FIRST): "b"}.get(pair.choices, TIE)


def tally(pairs: Iterable[JudgedPair]) -> PairCounts:
    """Count the verdicts of a judge."""
    judged = tuple(pairs)
    winners = [winner(pair) for pair in judged]
    choices = [pair.choices for pair in judged]
    a, b = winners.count("a"), winners.count("b")
    unreadable = sum(UNREADABLE in said for said in choices)
    return PairCounts(
        pairs=len(judged),
        a=a,
        b=b,
        ties=len(judged) - a - b,
        inconsistent=len(judged) - a - b - unreadable - choices.count((TIE, TIE)),
        unreadable=unreadable,
        first=choices.count((FIRST, FIRST)),
        second=choices.count((SECOND, SECOND)),
    )


def qualify(labelled: Iterable[JudgedPair]) -> Qualification:
    """Compare a judge with the labels of pairs."""
    pairs = tuple(labelled)
    if not pairs:
        return Qualification(0, 0.0, 0.0, 1.0)
    agreed = sum(winner(pair) == pair.label for pair in pairs)
    counts = tally(pairs)
    return Qualification(
        pairs=len(pairs),
        agreement=agreed / len(pairs),
        agreement_low=wilson(agreed, len(pairs))[0],
        position=(counts.first + counts.second) / len(pairs),
    )


def wilson(count: int, of: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """One-sided lower and upper bound of a share, each at this level.

    Wilson (1927), "Probable inference, the law of succession, and statistical inference".
    """
    if not of:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(confidence)
    share, spread = count / of, z * z / of
    middle = share + spread / 2
    reach = z * sqrt(share * (1 - share) / of + spread / (4 * of))
    return max(0.0, (middle - reach) / (1 + spread)), min(1.0, (middle + reach) / (1 + spread))


def sign_test(wins: int, losses: int) -> float:
    """Exact p of at least `wins` of the decided pairs, were both sides equally good."""
    n = wins + losses
    return sum(comb(n, k) for k in range(wins, n + 1)) / (1 << n)


def win_rate_interval(wins: int, losses: int, alpha: float) -> tuple[float, float]:
    """Bounds of the share of wins among decided pairs; each errs in alpha of the cases at most.

    Clopper and Pearson (1934), which belongs to the exact test: above 1/2 where that shows a win.
    """
    n = wins + losses
    if not n:
        return 0.0, 1.0
    low = 0.0 if not wins else _root(lambda p: _tail(wins, n, p) > alpha)
    high = 1.0 if not losses else _root(lambda p: 1 - _tail(wins + 1, n, p) < alpha)
    return low, high


def _tail(least: int, n: int, p: float) -> float:
    """Probability of at least `least` of n."""
    return sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(least, n + 1))


def _root(is_above: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return low
