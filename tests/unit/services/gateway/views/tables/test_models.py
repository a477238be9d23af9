"""Verdict of a version: of its newest run, or as it was published."""

from msgspec.structs import replace

from schemas.gate import GateRun
from services.gateway.views.tables.models import ModelRow
from tests.unit.tunery.provenance.signed import TERMS

ROW = ModelRow(
    id=TERMS.model_id,
    tenant="acme",
    sequence=1,
    created_at=1,
    series=TERMS.series,
    lineage=TERMS.lineage,
    files=(),
    stage="dev",
    stage_at=1,
    quarantined=False,
    deleted=False,
)


def test_the_newest_run_of_the_gate_counts() -> None:
    first = (ROW.verdict, ROW.gate_job, ROW.base_sha256)
    lineage = TERMS.lineage
    assert first == (lineage.verdict, lineage.job_id, lineage.base_sha256)
    run = GateRun(
        model_id=ROW.id,
        job_id="ftjob-9",
        base_sha256="d" * 64,
        verdict="block",
        scores_sha256="e" * 64,
    )
    again = replace(ROW, run=run)
    assert (again.verdict, again.gate_job, again.base_sha256) == ("block", "ftjob-9", "d" * 64)
