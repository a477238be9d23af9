"""Sweeps of the `job` stream → rows of sweeps."""

from typing import assert_never

from schemas.envelope import Header
from schemas.sweep import (
    SweepCancelled,
    SweepEnded,
    SweepEvent,
    SweepRungBegun,
    SweepRunSkipped,
    SweepSubmitted,
)
from services.gateway.jobs.sweep_tables import SKIPPED_RUNS, SWEEPS, SkippedRunRow, SweepRow
from tunery.runtime.verbs import Change


def project_sweep(header: Header, event: SweepEvent) -> tuple[Change, ...]:
    """The row of a sweep after an event of it."""
    match event:
        case SweepSubmitted(terms=terms):
            row = SweepRow(
                tenant=header.key,
                id=terms.sweep_id,
                sequence=header.seq,
                command_id=header.command_id,
                created_at=header.at,
                terms=terms,
                status="running",
            )
            return (SWEEPS.insert(row),)
        case SweepRunSkipped():
            skipped = SkippedRunRow(
                tenant=header.key, id=event.job_id, sweep_id=event.sweep_id, reason=event.reason
            )
            return (SKIPPED_RUNS.insert(skipped),)
        case SweepRungBegun():
            return (SWEEPS.update(_key(header, event.sweep_id), rung=event.rung),)
        case SweepCancelled():
            return (SWEEPS.update(_key(header, event.sweep_id), status="cancelling"),)
        case SweepEnded():
            values = {"ended_at": header.at, "best_job_id": event.best_job_id}
            key = _key(header, event.sweep_id)
            return (SWEEPS.update(key, status=event.outcome, **values),)
        case _:
            assert_never(event)


def _key(header: Header, sweep_id: str) -> dict[str, str]:
    return {"tenant": header.key, "id": sweep_id}
