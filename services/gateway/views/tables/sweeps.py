"""Read models of sweeps."""

from typing import Final, Literal

from schemas.envelope import Reason
from schemas.sweep import SweepTerms
from schemas.units import Ms
from services.gateway.views.table import Table, TableIndex, TableRow

SweepStatus = Literal["running", "cancelling", "completed", "cancelled", "stopped"]


class SweepRow(TableRow):
    """A sweep."""

    tenant: str
    sequence: int
    command_id: str
    created_at: Ms
    terms: SweepTerms
    status: SweepStatus
    rung: int | None = None  # current rung, from 1; null: the first
    ended_at: Ms | None = None
    best_job_id: str | None = None  # best job of a sweep that has ended
    reason: Reason | None = None  # why it has no open job and waits, or why it was stopped


class SkippedRunRow(TableRow):
    """A job of a sweep that was not submitted; its id is that which it would have got."""

    tenant: str
    sweep_id: str
    reason: Reason


SWEEPS: Final = Table(
    "sweeps",
    SweepRow,
    key=("tenant", "id"),
    order="sequence",
    indexes=(TableIndex(("tenant", "sequence")), TableIndex(("tenant", "command_id"))),
)
SKIPPED_RUNS: Final = Table(
    "skipped_runs",
    SkippedRunRow,
    key=("tenant", "id"),
    order="id",
    indexes=(TableIndex(("tenant", "sweep_id")),),
)
