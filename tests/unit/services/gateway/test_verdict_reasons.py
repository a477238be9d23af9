"""Reasons of a verdict as clauses."""

from msgspec.structs import replace

from schemas.gate import GatePolicy
from schemas.reasons import judging
from services.gateway.verdict_reasons import reasons_words
from tests.unit.services.gateway.jobs.job_events import SUMMARY


def test_a_reason_that_does_not_count_says_so() -> None:
    own_rows = judging("validation_loss_same", points_ppm=0)
    summary = replace(SUMMARY, reasons=(*SUMMARY.reasons, own_rows))
    first, second = reasons_words(replace(summary, policy=GatePolicy(blocking=("capability",))))
    assert "does not count" not in first
    assert second.endswith("(does not count towards the verdict)")
    assert "does not count" not in "".join(
        reasons_words(replace(summary, policy=GatePolicy(blocking=("holdout",))))
    )
