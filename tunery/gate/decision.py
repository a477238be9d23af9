"""Block, pass or inconclusive: "not shown to be worse" and "shown not to be worse" differ.

* block: the drop is larger than allowed, and a test rules out chance: McNemar's, exact, for items
  that are right or wrong, and a bootstrap of the pairs for scores between 0 and 1. With several
  comparisons the p-values are Holm's, so that an adapter that lost nothing is blocked by any of
  them in at most alpha of the cases.
* pass: the upper bound of the drop is within what is allowed. All comparisons have to pass, so each
  of them can be made at the full level (Berger 1982, "Multiparameter hypothesis testing and
  acceptance sampling").
* inconclusive: too few items to decide.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import pstdev
from typing import Final, Literal, TypeAlias

from tunery.gate.looks import levels
from tunery.gate.paired import (
    discordant_share,
    drop_shown,
    drop_upper_bound,
    mcnemar_worse,
    smallest_drop,
)
from tunery.gate.resampling import quantile, resampled_means

Decision: TypeAlias = Literal["pass", "block", "inconclusive"]
SINGLE_LOOK: Final = (1.0,)
ITEMS_MIN: Final = 200


@dataclass(frozen=True)
class Rule:
    """Tolerances of the gate."""

    drop_max: float  # loss of accuracy, as a share
    alpha: float = 0.05  # probability of blocking an adapter that lost nothing
    items_min: int = ITEMS_MIN  # fewer items neither pass nor block


@dataclass(frozen=True)
class Pairs:
    """Counts of one comparison."""

    items: int  # answered by both sides
    worse: int  # right on the side that is compared with, and wrong now
    better: int  # the reverse

    @property
    def drop(self) -> float:
        """Loss of accuracy, as a share; below zero: a gain."""
        return (self.worse - self.better) / self.items if self.items else 0.0

    @property
    def p(self) -> float:
        """P-value of the exact one-sided test for a drop."""
        return mcnemar_worse(self.worse, self.better)

    def bound(self, level: float) -> float:
        """The drop that is ruled out at this level."""
        return drop_upper_bound(self.worse, self.better, self.items, level)

    def smallest(self, level: float) -> float:
        """The drop that so many items show in 4 of 5 cases."""
        share = discordant_share(self.worse, self.better, self.items)
        return smallest_drop(share, self.items, level)


@dataclass(frozen=True)
class Differences:
    """Differences between paired scores from 0 to 1: for each item, now less before.

    The bootstrap cannot resolve levels below one resample: an interim analysis at such a level
    decides nothing.
    """

    values: tuple[float, ...]
    groups: tuple[str, ...]  # group of each item; items of a group belong together

    @property
    def items(self) -> int:
        """Answered by both sides."""
        return len(self.values)

    @property
    def worse(self) -> int:
        """Items whose score fell."""
        return sum(value < 0 for value in self.values)

    @property
    def better(self) -> int:
        """Items whose score rose."""
        return sum(value > 0 for value in self.values)

    @property
    def drop(self) -> float:
        """Loss of the mean score; below zero: a gain."""
        return -sum(self.values) / self.items if self.items else 0.0

    @cached_property
    def _means(self) -> list[float]:
        return resampled_means(self.values, self.groups) if self.values else []

    @property
    def p(self) -> float:
        """Share of the resamples that show no drop, one more counted: never 0."""
        none = len(self._means) - bisect_left(self._means, 0.0)
        return (none + 1) / (len(self._means) + 1)

    def bound(self, level: float) -> float:
        """The drop that is ruled out at this level."""
        if level * (len(self._means) + 1) < 1:
            return 1.0
        return -quantile(self._means, level)

    def smallest(self, level: float) -> float:
        """The drop that so many items show in 4 of 5 cases."""
        return drop_shown(pstdev(self._means), level)


Comparison: TypeAlias = Pairs | Differences


@dataclass(frozen=True)
class ComparisonResult:
    decision: Decision
    p: float  # p-value of the exact test
    p_adjusted: float  # after Holm's correction
    bound: float  # largest drop that is not ruled out, as a share
    smallest: float  # smallest drop that this number of items detects in 4 of 5 cases


def decide(
    comparisons: Sequence[Comparison],
    rule: Rule,
    looks: tuple[float, ...] = SINGLE_LOOK,
    look: int = 1,
) -> tuple[ComparisonResult, ...]:
    """A result for each comparison.

    looks: share of the planned items at each look, rising to 1; look: which of them this is,
    counted from 1. Before the last look, inconclusive means that more items are to be answered.
    """
    level = levels(looks, rule.alpha)[look - 1]
    p_values = [compared.p for compared in comparisons]
    return tuple(
        _compare(pairs, p, p_adjusted, rule, level, len(comparisons))
        for pairs, p, p_adjusted in zip(comparisons, p_values, adjust(p_values), strict=True)
    )


def overall(decisions: Iterable[Decision]) -> Decision:
    """Combine verdicts: any block blocks, and a pass needs all to pass."""
    distinct = set(decisions)
    if "block" in distinct:
        return "block"
    return "pass" if distinct == {"pass"} else "inconclusive"


def _compare(
    pairs: Comparison, p: float, p_adjusted: float, rule: Rule, level: float, comparisons: int
) -> ComparisonResult:
    if not pairs.items:
        return ComparisonResult("inconclusive", p, p_adjusted, bound=1.0, smallest=1.0)
    bound = pairs.bound(level)
    decision: Decision = "inconclusive"
    if pairs.items >= rule.items_min:
        if pairs.drop > rule.drop_max and p_adjusted < level:
            decision = "block"
        elif bound < rule.drop_max:
            decision = "pass"
    smallest = min(1.0, pairs.smallest(level / comparisons))
    return ComparisonResult(decision, p, p_adjusted, bound, smallest)


def adjust(p_values: Sequence[float]) -> tuple[float, ...]:
    """P-values, adjusted so that rejecting those below alpha errs in at most alpha of all families.

    Holm (1979), "A simple sequentially rejective multiple test procedure": the k-th smallest of m
    is multiplied by m - k + 1, and none is below one that was smaller.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return tuple(adjusted)
