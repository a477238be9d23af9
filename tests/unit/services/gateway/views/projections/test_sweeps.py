"""Rows of sweeps: where they are, and which of their jobs were not submitted."""

from typing import Any

from schemas.reasons import refusing
from schemas.sweep import (
    SweepCancelled,
    SweepEnded,
    SweepRungBegun,
    SweepRunSkipped,
    SweepSubmitted,
)
from services.gateway.views.projections.sweeps import project_sweep
from services.gateway.views.tables.sweeps import SKIPPED_RUNS, SWEEPS
from tests.unit.services.scheduler.domain.job.test_sweeps import sweep
from tests.unit.services.scheduler.fold import header_of
from tunery.runtime.verbs import Upsert

HEADER = header_of("job", "acme", 9_000)
TERMS = sweep(2, rungs=(10, 20)).terms


def row_after(*events: Any) -> Any:
    record: dict[str, Any] = {}
    for event in (SweepSubmitted(terms=TERMS), *events):
        (change,) = project_sweep(HEADER, event)
        assert isinstance(change, Upsert)
        record |= {**change.key, **change.values}
    return SWEEPS.read(record)


def test_a_sweep_runs_goes_on_and_ends() -> None:
    begun = SweepRungBegun(sweep_id="sweep-1", rung=1, trials=(1,))
    assert (row_after().status, row_after().rung, row_after().terms) == ("running", None, TERMS)
    assert row_after(begun).rung == 1
    assert row_after(SweepCancelled(sweep_id="sweep-1")).status == "cancelling"
    ended = row_after(SweepEnded(sweep_id="sweep-1", outcome="completed", best_job_id="ftjob-1-1"))
    assert (ended.status, ended.ended_at, ended.best_job_id) == ("completed", 9_000, "ftjob-1-1")


def test_a_skipped_job_has_a_row_with_the_reason() -> None:
    reason = refusing("jobs_at_most", limit=3)
    event = SweepRunSkipped(sweep_id="sweep-1", job_id="ftjob-0-0", reason=reason)
    (change,) = project_sweep(HEADER, event)
    assert isinstance(change, Upsert)
    row = SKIPPED_RUNS.read({**change.key, **change.values})
    assert row is not None
    assert (row.id, row.sweep_id, row.reason) == ("ftjob-0-0", "sweep-1", reason)
