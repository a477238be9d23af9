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
    """A job as its newest events leave it."""

    tenant: str
    sequence: int
    command_id: str
    created_at: Ms
    spec: JobSpec
    lane: Lane
    wanted: Wanted
    phase: Phase
    reason: Reason | None = None  # why it waits; what waits in its pool is explained by the queue
    node_ids: tuple[str, ...] | None = None
    attempt: int | None = None
    role: Role | None = None
    started_at: Ms | None = None
    eval_started_at: Ms | None = None  # of the newest evaluation
    loaded_step: int | None = None  # where the newest attempt began
    total_steps: int | None = None
    trained_tokens: Tokens | None = None
    hold: BudgetHold | None = None  # null until the training file is validated
    overage: bool | None = None
    prepared: Prepared | None = None
    scores: BlobFile | None = None  # of the evaluation, in object storage
    gate: ScoreSummary | None = None
    outcome: JobOutcome | None = None
    failure: Failure | None = None
    lineage: Lineage | None = None
    model_id: str | None = None
    finished_at: Ms | None = None
    billable_gpu_ms: GpuMs | None = None
    train_gpu_ms: GpuMs | None = None  # billed for its trainings
    eval_gpu_ms: GpuMs | None = None  # used by its newest evaluation, which may be billed less
    lost_gpu_ms: GpuMs | None = None
    micro_gpu_ms: MicroGpuMs | None = None
    billed_tokens: Tokens | None = None
    released_gpu_ms: GpuMs | None = None
    result_file: str | None = None  # its metrics as a file
    # tensorboard_file, wandb_file: its metrics as files for these tools
    tensorboard_file: str | None = None
    wandb_file: str | None = None
    submitted_by: Sealed | None = None  # id of the API key
    configuration: str | None = None
    environment: dict[str, str] | None = None
    train_attempt: int | None = None  # the newest attempt that trains
    # variant, losses_ppm: see its `TrainResult`
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
    """A message of a job."""

    tenant: str
    job_id: str
    at: Ms
    level: EventLevel
    kind: Literal["message", "metrics"]
    message: str
    sealed: Sealed | None  # the part that may quote tenant data
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
    """A node as its newest events leave it."""

    pool: str
    device: Device
    slots: int
    memory_bytes: int
    accelerator: str  # model of its devices; empty: not known
    # spot, reserved, taints: as in its description
    spot: bool
    reserved: bool
    taints: tuple[str, ...]
    state: str  # alive, lost or retired
    domain: str = ""  # domain of its fabric; empty: unknown
    # scores, interconnect, device_names, fabric: as in its description
    scores: bool = False
    interrupted_at: Ms | None = None  # when its machine was last taken away, or it was lost
    joining: bool | None = None  # its agent reads the journal still
    leaving: bool | None = None  # its agent is about to end
    ends_at: Ms | None = None  # when its machine is taken away
    warned: bool | None = None  # its machine may soon be taken away
    cordon: Reason | None = None  # why it gets no new leases
    registered_at: Ms | None = None
    seen_at: Ms | None = None  # its last proof of life on the log
    interconnect: str = ""
    device_names: tuple[str, ...] = ()
    faults: tuple[DeviceFault, ...] = ()  # faults of its devices
    keys_withdrawn: int | None = None  # number of its last key that is withdrawn
    fabric: bool = False

    @property
    def devices(self) -> frozenset[int]:
        """Numbers of its devices that have no fault."""
        return working_devices(self.slots, self.faults)

    @property
    def status(self) -> NodeStatus:
        """Return the status of the node in its life cycle."""
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
    """The last invitation of a node; `id` is the node's, or the name of several."""

    pool: str
    token_sha256: str
    expires_at: Ms
    invited_at: Ms
    invited_by: Sealed | None = None  # id of the API key
    public_key: str | None = None  # public key of the machine that used the token
    key_number: int | None = None  # number of the keys that the node got
    enrolled_at: Ms | None = None
    sealed_keys: str | None = None  # these keys in Base64, for the holder of the private key
    sealed_settings: str | None = None  # further settings that an operator gives the node
    uses: int | None = None  # how many nodes may use the token; None: this one alone
    invitation: str | None = None  # the invitation of several of which this is one use
    keys_withdrawn: int | None = None  # number of the node's last key that is withdrawn


class PlacementRow(TableRow):
    """Request of a job to its pool, from its queueing to its end; `id` is the job's.

    Fields that have no comment are those of its `Placement`.
    """

    pool: str
    tenant: str
    sequence: int  # order of arrival
    attempt: int
    role: Role
    lane: Lane
    slots: int
    device: Device
    memory_bytes: int
    excluded_nodes: tuple[str, ...]
    submitted_at: Ms
    # p50_ms, p90_ms: time that it should take, learnt from ended attempts
    p50_ms: Ms
    p90_ms: Ms
    # estimate_ms, limit_ms: `p50_ms` and `p90_ms` of its `Placement`
    estimate_ms: Ms
    limit_ms: Ms
    preemptions: int
    start_ms_max: Ms
    queued_at: Ms | None = None  # start of its wait
    constraints: NodeConstraints | None = None
    spot: bool | None = None
    domain_until: Ms | None = None  # when it takes nodes of any domain
    any_domain: bool | None = None  # it takes nodes of any domain now
    bound: tuple[Seat, ...] | None = None  # slots that others are freeing for it
    granted_at: Ms | None = None  # null while it waits
    # wait, waits_since: why and since when its cluster has not admitted it; null: it does not wait
    wait: Reason | None = None
    waits_since: Ms | None = None
    admitted_at: Ms | None = None  # when it waited for its cluster no more
    started_at: Ms | None = None
    # first_step, steps: step at which it began, and number of steps that remained then
    first_step: int | None = None
    steps: int | None = None
    # captured_ms, saved_step: elapsed time at its last checkpoint, and step of that
    captured_ms: Ms | None = None
    saved_step: int | None = None
    ends_by: Ms | None = None  # when it is killed, once it was asked to stop
    # nodes on which its last attempt failed, until the back-off is over. Between two attempts the
    # row has nothing else
    barred: tuple[str, ...] | None = None


class AttemptTimeRow(TableRow):
    """Expected and actual duration of an attempt that succeeded; `id` is the job's and its
    number. It is there from its queueing on, and read once it has ended."""

    pool: str
    sequence: int
    role: Role
    slots: int
    # p50_ms, p90_ms: see its `PlacementRow`
    p50_ms: Ms
    p90_ms: Ms
    first_step: int
    used_gpu_ms: GpuMs  # slots × time


class SeatRow(TableRow):
    """Slots of one node that a lease holds, until its agent says that they are free."""

    pool: str
    tenant: str
    job_id: str
    lane: Lane
    role: Role
    lease: int
    node_id: str
    slots: int
    granted_at: Ms
    devices: tuple[int, ...] = ()  # their numbers on the node

    def slots_of(self, node: NodeRow | None) -> int:
        """Return how many slots of a lease on this node have no faulty device."""
        if node is None or not node.faults:
            return self.slots
        offered = range(node.slots)
        return self.slots - sum(
            number in offered and number not in node.devices for number in self.devices
        )


class AttemptNodeRow(TableRow):
    """A node that an attempt's lease is on, also after its end: it alone may report about it."""

    pool: str
    job_id: str
    attempt: int
    node_id: str


class UsageRow(TableRow):
    """One line of a job's cost: a slice of usage, or a credit (`billable_gpu_ms` below zero)."""

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
    # journal_partition, incarnation, journal_offset: position of its event in the journal of `pool`
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
    variant: int | None = None  # see its `Step`


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
        TableIndex(("tenant", "finished_at"), where="finished_at IS NOT NULL"),
        TableIndex(("finished_at", "id"), where="finished_at IS NOT NULL"),
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
