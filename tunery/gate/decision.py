"""Block, pass or inconclusive: "not shown to be worse" and "shown not to be worse" differ.

* block: the drop is larger than allowed, and the exact McNemar test rules out chance. With several
  comparisons the p-values are Holm's, so that an adapter that lost nothing is blocked by any of
  them in at most alpha of the cases.
* pass: the upper bound of the drop is within what is allowed. All comparisons have to pass, so each
  of them can be made at the full level (Berger 1982, "Multiparameter hypothesis testing and
  acceptance sampling").
* inconclusive: the items cannot tell.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tunery.gate.holm import adjust
from tunery.gate.looks import levels
from tunery.gate.paired import (
    discordant_share,
    drop_upper_bound,
    mcnemar_worse,
    smallest_drop,
)

Decision: TypeAlias = Literal["pass", "block", "inconclusive"]
SINGLE_LOOK: Final = (1.0,)


@dataclass(frozen=True)
class Rule:
    """What the gate allows.

    drop_max: loss of accuracy, as a share
    alpha: how often an adapter that lost nothing may be blocked
    items_min: fewer items neither pass nor block
    """

    drop_max: float
    alpha: float = 0.05
    items_min: int = 200


@dataclass(frozen=True)
class Pairs:
    """Counts of one comparison.

    items: answered by both sides
    worse: right on the side that is compared with, and wrong now
    better: the reverse
    """

    items: int
    worse: int
    better: int

    @property
    def drop(self) -> float:
        """Loss of accuracy, as a share; below zero: a gain."""
        return (self.worse - self.better) / self.items if self.items else 0.0


@dataclass(frozen=True)
class ComparisonResult:
    """The decision on one comparison.

    p: of the exact test; p_adjusted: after Holm
    bound: the drop that is ruled out, as a share
    smallest: the drop that so many items show in 4 of 5 cases
    """

    decision: Decision
    p: float
    p_adjusted: float
    bound: float
    smallest: float


def decide(
    comparisons: Sequence[Pairs], rule: Rule, looks: tuple[float, ...] = SINGLE_LOOK, look: int = 1
) -> tuple[ComparisonResult, ...]:
    """A result for each comparison.

    looks: share of the planned items at each look, rising to 1; look: which of them this is,
    counted from 1. Before the last look, inconclusive means that more items are to be answered.
    """
    level = levels(looks, rule.alpha)[look - 1]
    p_values = [mcnemar_worse(pairs.worse, pairs.better) for pairs in comparisons]
    return tuple(
        _compare(pairs, p, p_adjusted, rule, level, len(comparisons))
        for pairs, p, p_adjusted in zip(comparisons, p_values, adjust(p_values), strict=True)
    )


def overall(decisions: Iterable[Decision]) -> Decision:
    """One that blocks, blocks; all have to pass."""
    distinct = set(decisions)
    if "block" in distinct:
        return "block"
    return "pass" if distinct == {"pass"} else "inconclusive"


def _compare(
    pairs: Pairs, p: float, p_adjusted: float, rule: Rule, level: float, comparisons: int
) -> ComparisonResult:
    if not pairs.items:
        return ComparisonResult("inconclusive", p, p_adjusted, bound=1.0, smallest=1.0)
    bound = drop_upper_bound(pairs.worse, pairs.better, pairs.items, level)
    share = discordant_share(pairs.worse, pairs.better, pairs.items)
    decision: Decision = "inconclusive"
    if pairs.items >= rule.items_min:
        if pairs.drop > rule.drop_max and p_adjusted < level:
            decision = "block"
        elif bound < rule.drop_max:
            decision = "pass"
    smallest = min(1.0, smallest_drop(share, pairs.items, level / comparisons))
    return ComparisonResult(decision, p, p_adjusted, bound, smallest)
