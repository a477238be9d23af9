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
    SweepWaiting,
)
from services.gateway.views.tables.sweeps import SKIPPED_RUNS, SWEEPS, SkippedRunRow, SweepRow
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
        case SweepWaiting():
            return (SWEEPS.update(_key(header, event.sweep_id), reason=event.reason),)
        case SweepRunSkipped():
            skipped = SkippedRunRow(
                tenant=header.key, id=event.job_id, sweep_id=event.sweep_id, reason=event.reason
            )
            return (SKIPPED_RUNS.insert(skipped),)
        case SweepRungBegun():
            return (SWEEPS.update(_key(header, event.sweep_id), rung=event.rung),)
        case SweepCancelled():
            key = _key(header, event.sweep_id)
            return (SWEEPS.update(key, status="cancelling", reason=None),)
        case SweepEnded():
            ended = SWEEPS.update(
                _key(header, event.sweep_id),
                status=event.outcome,
                ended_at=header.at,
                best_job_id=event.best_job_id,
                reason=event.reason,
            )
            return (ended,)
        case _:
            assert_never(event)


def run_submitted(header: Header, sweep_id: str | None) -> tuple[Change, ...]:
    """The row of a sweep that has a new job, which waits for nothing."""
    return () if sweep_id is None else (SWEEPS.update(_key(header, sweep_id), reason=None),)


def _key(header: Header, sweep_id: str) -> dict[str, str]:
    return {"tenant": header.key, "id": sweep_id}
