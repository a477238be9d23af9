"""Read models of jobs: their rows and history, events, checkpoints, use, telemetry; and nodes."""

from typing import Any, Final, Literal, TypeAlias

from schemas.account import Lane
from schemas.dataset import BaseTokens, Prepared
from schemas.envelope import Part, Reason
from schemas.job import JobOutcome, Phase, Wanted
from schemas.model import Lineage, ScoreSummary
from schemas.pool import Role
from schemas.reasons import Failure
from schemas.sealed import Sealed
from schemas.submission import Estimate, JobSpec
from schemas.training import BlobFile, Device
from schemas.units import GpuMs, MicroGpuMs, Ms, Tokens
from services.gateway.views.table import Table, TableIndex, TableRow

EventLevel: TypeAlias = Literal["info", "warn", "error"]
NodeStatus: TypeAlias = Literal["joining", "up", "cordoned", "leaving", "lost", "retired"]
JOB_ENTRY: Final = ("tenant", "job_id", "id")


class BudgetHold(Part):
    """The estimate from which the hold was taken, and the tokens it is based on."""

    tokens: BaseTokens
    estimate: Estimate


class JobRow(TableRow):
    """A job as its newest events leave it.

    reason: why it waits. queue_sequence: its place among what waits in its pool, null: it does not
    wait there. loaded_step: where the newest attempt began. hold: null until the training file is
    validated. scores: of the evaluation, in object storage. result_file: its metrics as a file.
    submitted_by: id of the API key.
    """

    tenant: str
    sequence: int
    command_id: str
    created_at: Ms
    spec: JobSpec
    lane: Lane
    suffix: Sealed | None
    metadata: Sealed | None
    wanted: Wanted
    phase: Phase
    reason: Reason | None = None
    queue_sequence: int | None = None
    node_ids: tuple[str, ...] | None = None
    attempt: int | None = None
    role: Role | None = None
    started_at: Ms | None = None
    loaded_step: int | None = None
    total_steps: int | None = None
    trained_tokens: Tokens | None = None
    hold: BudgetHold | None = None
    overage: bool | None = None
    prepared: Prepared | None = None
    scores: BlobFile | None = None
    gate: ScoreSummary | None = None
    outcome: JobOutcome | None = None
    failure: Failure | None = None
    lineage: Lineage | None = None
    model_id: str | None = None
    finished_at: Ms | None = None
    billable_gpu_ms: GpuMs | None = None
    lost_gpu_ms: GpuMs | None = None
    micro_gpu_ms: MicroGpuMs | None = None
    billed_tokens: Tokens | None = None
    released_gpu_ms: GpuMs | None = None
    result_file: str | None = None
    submitted_by: Sealed | None = None


class JobChangeRow(TableRow):
    """A change of one column. All changes up to a moment give the job as it was then."""

    tenant: str
    job_id: str
    at: Ms
    field: str
    value: Any


class JobEventRow(TableRow):
    """A message of a job. `sealed`: the part that may quote tenant data."""

    tenant: str
    job_id: str
    at: Ms
    level: EventLevel
    kind: Literal["message", "metrics"]
    message: str
    sealed: Sealed | None
    data: dict[str, Any] | None


class CheckpointRow(TableRow):
    tenant: str
    job_id: str
    sequence: int
    created_at: Ms
    attempt: int
    step: int
    tokens: Tokens
    trained_tokens: Tokens
    manifest_sha256: str
    bytes: int
    files: tuple[BlobFile, ...]


class NodeRow(TableRow):
    """A node as its newest events leave it.

    state: alive, lost or retired. joining: its agent reads the journal still. leaving: its agent
    is about to end. cordon: why it gets no new leases. seen_at: its last proof of life on the log.
    """

    pool: str
    device: Device
    slots: int
    memory_bytes: int
    state: str
    joining: bool | None = None
    leaving: bool | None = None
    cordon: Reason | None = None
    registered_at: Ms | None = None
    seen_at: Ms | None = None

    @property
    def status(self) -> NodeStatus:
        """Where it is in its life."""
        if self.state == "lost":
            return "lost"
        if self.state == "retired":
            return "retired"
        if self.leaving:
            return "leaving"
        if self.cordon is not None:
            return "cordoned"
        return "joining" if self.joining else "up"


class UsageRow(TableRow):
    """One line of a job's cost: a slice of usage, or a credit (`billable_gpu_ms` below zero).

    journal_partition, incarnation, journal_offset: of its event in the journal of `pool`.
    """

    tenant: str
    job_id: str
    at: Ms
    attempt: int
    role: Role
    lane: Lane
    price_version: str
    hour_utc: int
    kind: str
    used_gpu_ms: GpuMs
    billable_gpu_ms: GpuMs
    cause: str | None
    journal_partition: int
    incarnation: int
    journal_offset: int
    device: Device
    accelerator: str
    spot: bool
    tokens: Tokens


class StepRow(TableRow):
    """One optimizer step, from the telemetry. A figure that is not finite is null."""

    tenant: str
    job_id: str
    step: int
    at: Ms
    attempt: int
    total_steps: int
    loss: float | None
    accuracy: float | None
    valid_loss: float | None
    learning_rate: float | None
    tokens: Tokens
    elapsed_ms: Ms


class LogLineRow(TableRow):
    tenant: str
    job_id: str
    at: Ms
    attempt: int
    level: str
    message: str


JOBS: Final = Table(
    "jobs",
    JobRow,
    key=("tenant", "id"),
    order="sequence",
    indexes=(
        TableIndex(("tenant", "sequence")),
        TableIndex(("tenant", "command_id")),
        TableIndex(("phase", "sequence")),
    ),
)
JOB_HISTORY: Final = Table("job_history", JobChangeRow, key=JOB_ENTRY, order="id")
JOB_EVENTS: Final = Table("job_events", JobEventRow, key=JOB_ENTRY, order="id")
CHECKPOINTS: Final = Table(
    "checkpoints",
    CheckpointRow,
    key=("tenant", "id"),
    order="sequence",
    indexes=(TableIndex(("tenant", "job_id", "sequence")),),
)
NODES: Final = Table("nodes", NodeRow, key=("id",), order="id")
USAGE: Final = Table(
    "usage",
    UsageRow,
    key=JOB_ENTRY,
    order="id",
    indexes=(
        TableIndex(("tenant", "hour_utc")),
        TableIndex(("tenant", "journal_partition", "journal_offset")),
    ),
)
STEPS: Final = Table(
    "steps",
    StepRow,
    key=("tenant", "job_id", "step"),
    order="id",
    indexes=(TableIndex(("tenant", "job_id", "id")),),
)
LINES: Final = Table("lines", LogLineRow, key=JOB_ENTRY, order="id")
