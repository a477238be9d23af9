"""The gate for a reward model: whether it tells preferred answers from others, by pairs held back.

There are no questions that it could lose: it answers none. So it is compared with chance, by the
exact binomial test, which the number of pairs makes strict or not. How many of the pairs the base
model tells apart by its likelihoods is reported as well, and decides nothing.
"""

from collections.abc import Sequence
from math import comb

from schemas.envelope import Reason
from schemas.model import Verdict
from schemas.reasons import VerdictCode, judging
from schemas.units import PPM, divide_up
from tunery.work.scores import PAIRS, ItemScore


def are_pairs(items: Sequence[ItemScore]) -> bool:
    """Return whether the items of an evaluation are preference pairs for a reward model."""
    return bool(items) and all(item.category == PAIRS for item in items)


def judge_pairs(items: Sequence[ItemScore], alpha_ppm: int) -> tuple[Verdict, Reason, int]:
    """The verdict on a reward model, its reason, and the p-value of better than chance.

    alpha_ppm: how often one that guesses may pass.
    """
    n = len(items)
    right, base = sum(item.adapter for item in items), sum(item.base for item in items)
    better_ppm, worse_ppm = _p_ppm(right, n), _p_ppm(n - right, n)
    verdict: Verdict = "inconclusive"
    code: VerdictCode = "pairs_undecided"
    if better_ppm < alpha_ppm:
        verdict, code = "pass", "pairs_told_apart"
    elif worse_ppm < alpha_ppm:
        verdict, code = "block", "pairs_reversed"
    figures = {"items": n, "right_ppm": PPM * right // n, "base_right_ppm": PPM * base // n}
    return verdict, judging(code, **figures, p_ppm=min(better_ppm, worse_ppm)), better_ppm


def _p_ppm(right: int, n: int) -> int:
    """Probability that at least `right` of n are right by chance; in millionths, rounded up."""
    ways = sum(comb(n, count) for count in range(right, n + 1))
    return divide_up(PPM * ways, 1 << n)
