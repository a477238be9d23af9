"""Read models of jobs: their rows and history, events, checkpoints, use, telemetry; and nodes."""

from typing import Any, Final, Literal, TypeAlias

from schemas.account import Lane
from schemas.dataset import BaseTokens, Prepared
from schemas.envelope import Part, Reason
from schemas.job import JobOutcome, Phase, Wanted
from schemas.model import Lineage, ScoreSummary
from schemas.node import DeviceFault, Seat, working_devices
from schemas.pool import Role
from schemas.reasons import Failure
from schemas.sealed import Sealed
from schemas.submission import Estimate, JobSpec
from schemas.training import BlobFile, Device, NodeConstraints
from schemas.units import GpuMs, MicroGpuMs, Ms, Tokens
from services.gateway.views.table import Table, TableIndex, TableRow

EventLevel: TypeAlias = Literal["info", "warn", "error"]
NodeStatus: TypeAlias = Literal[
    "joining", "up", "cordoned", "leaving", "noticed", "lost", "retired"
]
JOB_ENTRY: Final = ("tenant", "job_id", "id")


class BudgetHold(Part):
    """The estimate from which the hold was taken, and the tokens it is based on."""

    tokens: BaseTokens
    estimate: Estimate


class JobRow(TableRow):
    """A job as its newest events leave it.

    reason: why it waits; what waits in its pool is explained by the queue. loaded_step: where the
    newest attempt began. eval_started_at: of the newest evaluation. hold: null until the training
    file is validated. scores: of the evaluation, in object storage. result_file: its metrics as a
    file. tensorboard_file, wandb_file: the same for these tools. submitted_by: id of the API key.
    train_gpu_ms: billed for its trainings. train_attempt: the newest attempt that trains. variant,
    losses_ppm: as in its `TrainResult`.
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
    node_ids: tuple[str, ...] | None = None
    attempt: int | None = None
    role: Role | None = None
    started_at: Ms | None = None
    eval_started_at: Ms | None = None
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
    train_gpu_ms: GpuMs | None = None
    lost_gpu_ms: GpuMs | None = None
    micro_gpu_ms: MicroGpuMs | None = None
    billed_tokens: Tokens | None = None
    released_gpu_ms: GpuMs | None = None
    result_file: str | None = None
    tensorboard_file: str | None = None
    wandb_file: str | None = None
    submitted_by: Sealed | None = None
    configuration: str | None = None
    environment: dict[str, str] | None = None
    train_attempt: int | None = None
    variant: int | None = None
    losses_ppm: tuple[int | None, ...] | None = None

    @property
    def settled(self) -> JobSpec:
        """Its spec, with the settings of the variant that its training has left."""
        return self.spec.of_variant(self.variant)


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
    is about to end. ends_at: when its machine is taken away. warned: it may be soon. cordon: why it
    gets no new leases. accelerator: model of its devices; empty: not known. spot, reserved, taints:
    as in its description. seen_at: its last proof of life on the log.
    domain: of its fabric; empty: not told. interrupted_at: when its machine was last taken away, or
    it was lost. scores, interconnect, device_names: as in its description. faults: of its devices.
    keys_withdrawn: number of its last key that is withdrawn.
    """

    pool: str
    device: Device
    slots: int
    memory_bytes: int
    accelerator: str
    spot: bool
    reserved: bool
    taints: tuple[str, ...]
    state: str
    domain: str = ""
    scores: bool = False
    interrupted_at: Ms | None = None
    joining: bool | None = None
    leaving: bool | None = None
    ends_at: Ms | None = None
    warned: bool | None = None
    cordon: Reason | None = None
    registered_at: Ms | None = None
    seen_at: Ms | None = None
    interconnect: str = ""
    device_names: tuple[str, ...] = ()
    faults: tuple[DeviceFault, ...] = ()
    keys_withdrawn: int | None = None

    @property
    def devices(self) -> frozenset[int]:
        """Numbers of its devices that have no fault."""
        return working_devices(self.slots, self.faults)

    @property
    def status(self) -> NodeStatus:
        """Where it is in its life."""
        if self.state == "lost":
            return "lost"
        if self.state == "retired":
            return "retired"
        if self.ends_at is not None:
            return "noticed"
        if self.leaving:
            return "leaving"
        if self.cordon is not None:
            return "cordoned"
        return "joining" if self.joining else "up"


class InvitationRow(TableRow):
    """The last invitation of a node; `id` is the node's.

    invited_by: id of the API key. public_key: of whom the token was used by. key_number: of the
    keys that the node got. sealed_keys: these, in Base64, for who has the private key.
    keys_withdrawn: number of the node's last key that is withdrawn. sealed_settings: what an
    operator gives the node beside them.
    """

    pool: str
    token_sha256: str
    expires_at: Ms
    invited_at: Ms
    invited_by: Sealed | None = None
    public_key: str | None = None
    key_number: int | None = None
    enrolled_at: Ms | None = None
    sealed_keys: str | None = None
    sealed_settings: str | None = None
    keys_withdrawn: int | None = None


class PlacementRow(TableRow):
    """What a job asked its pool for, from its queueing to its end; `id` is the job's.

    attempt … constraints: as in its `Placement`, but p50_ms and p90_ms are what it should take by
    what has ended; estimate_ms and limit_ms are those of its `Placement`. sequence: its arrival.
    bound: slots that others were told to free for it. granted_at: null while it waits. first_step,
    steps: of its start, and to do then. captured_ms, saved_step: elapsed at its last checkpoint,
    and its step. ends_by: when what was told to end is killed. barred: nodes that its last attempt
    failed on, until the back-off is over. Between two attempts only that is there. domain_until:
    when it takes nodes of any domain; any_domain: it does.
    """

    pool: str
    tenant: str
    sequence: int
    attempt: int
    role: Role
    lane: Lane
    slots: int
    device: Device
    memory_bytes: int
    excluded_nodes: tuple[str, ...]
    submitted_at: Ms
    p50_ms: Ms
    p90_ms: Ms
    estimate_ms: Ms
    limit_ms: Ms
    preemptions: int
    start_ms_max: Ms
    constraints: NodeConstraints | None = None
    spot: bool | None = None
    domain_until: Ms | None = None
    any_domain: bool | None = None
    bound: tuple[Seat, ...] | None = None
    granted_at: Ms | None = None
    started_at: Ms | None = None
    first_step: int | None = None
    steps: int | None = None
    captured_ms: Ms | None = None
    saved_step: int | None = None
    ends_by: Ms | None = None
    barred: tuple[str, ...] | None = None


class AttemptTimeRow(TableRow):
    """What an attempt that succeeded was expected to take, and took; `id` is the job's and its
    number. It is there from its queueing on, and read once it has ended.

    p50_ms, p90_ms: as in its `PlacementRow`. first_step: where it began. used_gpu_ms: slots × time.
    """

    pool: str
    sequence: int
    role: Role
    slots: int
    p50_ms: Ms
    p90_ms: Ms
    first_step: int
    used_gpu_ms: GpuMs


class SeatRow(TableRow):
    """Slots of one node that a lease holds, until its agent says that they are free.

    devices: their numbers on the node.
    """

    pool: str
    tenant: str
    job_id: str
    lane: Lane
    role: Role
    lease: int
    node_id: str
    slots: int
    granted_at: Ms
    devices: tuple[int, ...] = ()

    def slots_of(self, node: NodeRow | None) -> int:
        """Those of its slots that count on its node: their devices have no fault."""
        if node is None or not self.devices:
            return self.slots
        return len(node.devices.intersection(self.devices))


class AttemptNodeRow(TableRow):
    """A node that an attempt's lease is on, also after its end: it alone may report about it."""

    pool: str
    job_id: str
    attempt: int
    node_id: str


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
    """One optimizer step, from the telemetry. A figure that is not finite is null.

    variant: as in its `Step`.
    """

    tenant: str
    job_id: str
    step: int
    at: Ms
    attempt: int
    total_steps: int
    loss: float | None
    accuracy: float | None
    valid_loss: float | None
    valid_accuracy: float | None
    learning_rate: float | None
    tokens: Tokens
    elapsed_ms: Ms
    tokens_per_s: float | None = None
    memory_bytes: int | None = None
    reward_accuracy: float | None = None
    reward_margin: float | None = None
    reward: float | None = None
    reward_std: float | None = None
    valid_reward_accuracy: float | None = None
    variant: int | None = None


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
        TableIndex(("tenant", "configuration", "sequence")),
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
INVITATIONS: Final = Table("node_invitations", InvitationRow, key=("id",), order="id")
PLACEMENTS: Final = Table("placements", PlacementRow, key=("pool", "id"), order="sequence")
ATTEMPT_TIMES: Final = Table(
    "attempt_times",
    AttemptTimeRow,
    key=("pool", "id"),
    order="sequence",
    indexes=(TableIndex(("pool", "sequence")),),
)
ATTEMPT_NODES: Final = Table(
    "attempt_nodes",
    AttemptNodeRow,
    key=("pool", "id"),
    order="id",
    indexes=(TableIndex(("job_id", "attempt")),),
)
SEATS: Final = Table("seats", SeatRow, key=("pool", "id"), order="id")
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
