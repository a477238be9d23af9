"""Reasons of a verdict as clauses."""

from typing import Final

from schemas.gate import GatePolicy
from schemas.model import ScoreSummary
from schemas.reasons import VerdictCode
from services.gateway.wording import verdict_words

# what a policy without `holdout` shows, and does not let block
OF_OWN_ROWS: Final[frozenset[VerdictCode]] = frozenset(
    {
        *("gain_below", "validation_loss_same", "validation_loss_rose"),
        *("measure_gained", "measure_below", "measure_undecided"),
        *("measure_kept", "measure_lost", "measure_rows_few"),
    }
)


def reasons_words(summary: ScoreSummary) -> list[str]:
    """Return the reasons of the verdict as clauses, marking those that do not count towards it."""
    blocking = (summary.policy or GatePolicy()).blocking
    suffix = "" if "holdout" in blocking else " (does not count towards the verdict)"
    return [
        verdict_words(reason) + (suffix if reason.code in OF_OWN_ROWS else "")
        for reason in summary.reasons
    ]
