"""The two answers of the gate in one word each: are skills kept, is the own task learnt? Pure.

The verdict says whether a version may be served; these say why a person would want it. A result can
pass because nothing was lost and still have learnt nothing.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from schemas.gate import GatePolicy
from schemas.model import ScoreSummary, Verdict
from schemas.units import PPM
from tunery.gate.decision import overall

Skills: TypeAlias = Literal["kept", "lost", "unclear"]
OwnTask: TypeAlias = Literal["learnt", "not learnt", "unclear"]
#: a validation loss above this share of the base model's is the base model's
LEARNT_SHARE: Final = 0.98
SKILLS: Final[Mapping[Verdict, Skills]] = {
    "pass": "kept",
    "block": "lost",
    "inconclusive": "unclear",
}
OWN_TASK: Final[Mapping[Verdict, OwnTask]] = {
    "pass": "learnt",
    "block": "not learnt",
    "inconclusive": "unclear",
}
PAIRS: Final[Mapping[str, OwnTask]] = {
    "pairs_told_apart": "learnt",
    "pairs_reversed": "not learnt",
    "pairs_undecided": "unclear",
}


def skills_of(summary: ScoreSummary) -> Skills:
    """Return whether general skills of the base model were kept, even where the policy blocks
    nothing.

    A reward model writes no answers, so that nothing is known of its skills.
    """
    if _is_not_finite(summary):
        return "lost"
    verdicts = [c.verdict for c in summary.comparisons if c.model_id is None]
    return SKILLS[overall(verdicts)] if verdicts else "unclear"


def own_task_of(summary: ScoreSummary) -> OwnTask:
    """Return whether the tenant's own validation rows show that their task was learnt.

    The deciding measure counts, where the job names one; for a reward model the pairs that it
    ranks; otherwise the loss, which must have fallen by the gain that the policy wants.
    """
    if _is_not_finite(summary):
        return "not learnt"
    if of_pairs := [PAIRS[why.code] for why in summary.reasons if why.code in PAIRS]:
        return of_pairs[0]
    if summary.measures:
        return OWN_TASK[summary.measures[0].verdict]
    base, adapter = summary.base_loss_ppm, summary.adapter_loss_ppm
    if base <= 0 or adapter < 0:  # no rows were kept back, or the base model left nothing to learn
        return "unclear"
    gain_ppm = round(PPM * (base - adapter) / base)
    if gain_ppm > 0 and gain_ppm >= (summary.policy or GatePolicy()).gain_min_ppm:
        return "learnt"
    return "not learnt" if adapter > LEARNT_SHARE * base else "unclear"


def _is_not_finite(summary: ScoreSummary) -> bool:
    return any(reason.code == "scores_not_finite" for reason in summary.reasons)
