"""The gate: a pure function of paired scores.

Scores that are not finite block, whatever the others say: there is nothing to compare.

Otherwise three outcomes, because "not shown to be worse" and "shown not to be worse" differ:
* block: the drop is larger than allowed, and an exact one-sided McNemar test rules out chance;
* pass: the upper confidence bound of the drop is within what is allowed;
* inconclusive: the items cannot tell.
"""

from fractions import Fraction
from math import comb, sqrt

from schemas.envelope import Reason
from schemas.model import ScoreSummary, Verdict
from schemas.reasons import VerdictCode, judging
from schemas.units import PPM
from tunery.work.scores import ItemScore, Scores

DROP_MAX_PPM = 100_000  # ten points, where a job does not say: 200 items seldom prove less
ALPHA_PPM = 50_000
Z_ONE_SIDED_95 = 1.6448536269514722
ITEMS_MIN = 200
LEARNT_SHARE = 0.99  # a loss above it is the base model's


def summarise(scores: Scores, drop_max_ppm: int | None = None) -> ScoreSummary:
    """Verdict and figures of one evaluation. `drop_max_ppm`: None for DROP_MAX_PPM."""
    items, holdout = scores.items, scores.holdout
    if scores.not_finite:
        verdict, reasons = _block_not_finite(scores.not_finite)
    else:
        verdict, reasons = judge(items, DROP_MAX_PPM if drop_max_ppm is None else drop_max_ppm)
    if verdict == "pass" and (code := _unlearned(scores)) is not None:
        reasons += (judging(code),)
    return ScoreSummary(
        verdict=verdict,
        reasons=reasons,
        items=len(items),
        base_correct=sum(item.base for item in items),
        adapter_correct=sum(item.adapter for item in items),
        p_value_ppm=round(PPM * mcnemar_worse(*discordant(items))),
        base_loss_ppm=_ppm(holdout.base_loss),
        adapter_loss_ppm=_ppm(holdout.adapter_loss),
        base_exact_match_ppm=_share_ppm(holdout.base_exact, holdout.generated),
        adapter_exact_match_ppm=_share_ppm(holdout.adapter_exact, holdout.generated),
    )


def judge(
    items: tuple[ItemScore, ...], drop_max_ppm: int = DROP_MAX_PPM
) -> tuple[Verdict, tuple[Reason, ...]]:
    """The verdict on paired right/wrong answers, and why."""
    n = len(items)
    if n < ITEMS_MIN:
        return "inconclusive", (judging("items_too_few", items=n, limit=ITEMS_MIN),)
    worse, better = discordant(items)
    drop_ppm = PPM * (worse - better) // n
    p_ppm = round(PPM * mcnemar_worse(worse, better))
    change_ppm = -drop_ppm
    if drop_ppm > drop_max_ppm and p_ppm < ALPHA_PPM:
        shown = judging(
            "drop_shown", change_ppm=change_ppm, items=n, p_ppm=p_ppm, drop_max_ppm=drop_max_ppm
        )
        return "block", (shown,)
    bound = drop_upper_bound(worse, better, n)
    figures = {"change_ppm": change_ppm, "items": n, "p_ppm": p_ppm, "drop_max_ppm": drop_max_ppm}
    figures["bound_ppm"] = round(PPM * bound)
    if bound < drop_max_ppm / PPM:
        return "pass", (judging("drop_excluded", **figures),)
    return "inconclusive", (judging("drop_undecided", **figures),)


def _block_not_finite(sides: tuple[str, ...]) -> tuple[Verdict, tuple[Reason, ...]]:
    return "block", (judging("scores_not_finite", sides=", ".join(sides)),)


def discordant(items: tuple[ItemScore, ...]) -> tuple[int, int]:
    """(right before and wrong now, wrong before and right now)."""
    worse = sum(item.base and not item.adapter for item in items)
    better = sum(item.adapter and not item.base for item in items)
    return worse, better


def mcnemar_worse(worse: int, better: int) -> float:
    """Exact one-sided p of at least `worse` of the discordant pairs, were both sides equally good.

    McNemar (1947), exact form: worse ~ Binomial(worse + better, 1/2).
    """
    n = worse + better
    return float(Fraction(sum(comb(n, k) for k in range(worse, n + 1)), 1 << n))


def drop_upper_bound(worse: int, better: int, n: int) -> float:
    """One-sided 95 % upper bound of the drop in accuracy, as a share.

    Wald interval for paired proportions after adding 1/2 to each cell (Agresti and Min 2005,
    "Simple improved confidence intervals for comparing matched proportions").
    """
    b, c, total = worse + 0.5, better + 0.5, n + 2
    drop = (b - c) / total
    return drop + Z_ONE_SIDED_95 * sqrt(max(b + c - (b - c) ** 2 / total, 0)) / total


def _unlearned(scores: Scores) -> VerdictCode | None:
    """Why an adapter that may pass is no better on its own rows; None: it is, or there are none."""
    base, adapter = scores.holdout.base_loss, scores.holdout.adapter_loss
    if base is None or adapter is None or adapter < LEARNT_SHARE * base:
        return None
    return "validation_loss_rose" if adapter > base else "validation_loss_same"


def _ppm(value: float | None) -> int:
    return -1 if value is None else round(PPM * value)


def _share_ppm(count: int, of: int) -> int:
    return PPM * count // of if of else -1
