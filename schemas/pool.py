"""Stream `pool` (key: pool, owner: scheduler): nodes, slots, leases, the waiting queue, usage.

Everything about an attempt goes to `pool` with its fencing token; only reactions tell `job`.
"""

from typing import Literal, TypeAlias

from schemas.account import Lane
from schemas.envelope import Message, Part, Rejected, Repeated, Sha256, Tick
from schemas.sealed import Sealed
from schemas.training import (
    AttemptOutcome,
    Checkpoint,
    Device,
    FailureCause,
    Result,
    SkippedCheckpoint,
    Work,
)
from schemas.units import GpuMs, Ms

Role: TypeAlias = Literal["train", "eval"]
CloseMode: TypeAlias = Literal["drain", "kill"]


class Token(Part):
    """Fencing token of a lease, compared by equality with the current one."""

    pool: str
    lease: int


class Idle(Part):
    """A lease whose process lives, has started, and has said nothing for so long."""

    lease: int
    idle_ms: Ms


class NodeSeen(Part):
    """`last_seen` is broker time of the last heartbeat.

    `silent`: it is longer ago than the TTL, and the watcher itself could read all the while.
    `idle`: leases that have made no progress for longer than an operator's limit.
    """

    node_id: str
    incarnation: str
    last_seen: Ms
    silent: bool
    idle: tuple[Idle, ...] = ()


# --- commands
class RegisterNode(Message):
    """An agent starts. Leases of the node's older incarnations end at the last proof of life."""

    node_id: str
    incarnation: str
    slots: int
    device: Device
    memory_bytes: int


class RetireNode(Message):
    """The agent leaves in order: it has stopped and reported everything it ran."""

    node_id: str
    incarnation: str


class ObserveNodes(Message):
    seen: tuple[NodeSeen, ...]


class RequestPlacement(Message):
    tenant: str
    job_id: str
    attempt: int
    role: Role
    lane: Lane
    slots: int
    max_gpu_ms: GpuMs
    price_version: str
    work: Work
    checkpoints: tuple[Checkpoint, ...]
    exclude_nodes: tuple[str, ...] = ()


class ClosePlacement(Message):
    """Ends one placement. Repeats only harden (drain, then kill); on closed ones it is a no-op."""

    job_id: str
    attempt: int
    mode: CloseMode


class ReportStarted(Message):
    """`loaded`: manifest of the checkpoint it goes on from, null when it starts at step 0."""

    token: Token
    incarnation: str
    loaded: Sha256 | None
    loaded_step: int
    skipped: tuple[SkippedCheckpoint, ...]
    total_steps: int


class ReportCheckpoint(Message):
    token: Token
    incarnation: str
    checkpoint: Checkpoint


class ReportExit(Message):
    """`elapsed_ms` is the agent's monotonic time since the accepted start."""

    token: Token
    incarnation: str
    outcome: AttemptOutcome
    elapsed_ms: Ms
    cause: FailureCause | None = None
    message: Sealed | None = None
    result: Result | None = None


class ConfirmFreed(Message):
    """Nothing of this lease runs on the node any more: its slots are free."""

    lease: int
    node_id: str
    incarnation: str


# --- events
class NodeRegistered(Message):
    node_id: str
    incarnation: str
    slots: int
    device: Device
    memory_bytes: int


class NodeRetired(Message):
    node_id: str


class NodesObserved(Message):
    """Proof of life up to `last_seen`, for liveness and for usage slices."""

    seen: tuple[NodeSeen, ...]


class NodeLost(Message):
    node_id: str
    incarnation: str
    last_seen: Ms


class PlacementQueued(Message):
    tenant: str
    job_id: str
    attempt: int
    role: Role
    lane: Lane
    slots: int
    max_gpu_ms: GpuMs
    price_version: str
    work: Work
    checkpoints: tuple[Checkpoint, ...]
    exclude_nodes: tuple[str, ...]


class WaitExplained(Message):
    """Why a placement waits, for what, at which place in its queue; only when it changes."""

    tenant: str
    job_id: str
    attempt: int
    reason: str
    position: int


class LeaseGranted(Message):
    """All that an agent needs: it never lists a bucket to find the newest checkpoint."""

    token: Token
    tenant: str
    job_id: str
    attempt: int
    role: Role
    lane: Lane
    node_id: str
    incarnation: str
    slots: int
    max_gpu_ms: GpuMs
    price_version: str
    work: Work
    checkpoints: tuple[Checkpoint, ...]


class LeaseStarted(Message):
    token: Token
    tenant: str
    job_id: str
    attempt: int
    role: Role
    loaded: Sha256 | None
    loaded_step: int
    skipped: tuple[SkippedCheckpoint, ...]
    total_steps: int


class CheckpointAccepted(Message):
    token: Token
    tenant: str
    job_id: str
    checkpoint: Checkpoint


class LeaseDraining(Message):
    """The notice is out: finish the step, checkpoint, exit before `deadline`, then it is killed."""

    token: Token
    tenant: str
    job_id: str
    attempt: int
    node_id: str
    deadline: Ms
    reason: Literal["closed", "budget"]


class LeaseKilled(Message):
    """The agent must kill what runs under this lease, if anything does."""

    token: Token
    tenant: str
    job_id: str
    attempt: int
    node_id: str


class UsageSliced(Message):
    """Use of one lease in one UTC hour; `billable` is capped by `max_gpu_ms`, cumulatively."""

    token: Token
    tenant: str
    job_id: str
    attempt: int
    role: Role
    lane: Lane
    price_version: str
    hour: int
    used_gpu_ms: GpuMs
    billable_gpu_ms: GpuMs


class UsageCredited(Message):
    """Work lost to the platform since the last accepted checkpoint, in the lease's last hour."""

    token: Token
    tenant: str
    job_id: str
    attempt: int
    role: Role
    lane: Lane
    price_version: str
    hour: int
    lost_gpu_ms: GpuMs
    cause: Literal["lost", "preempted", "bad_node", "platform", "skipped_checkpoint"]


class PlacementClosed(Message):
    """The one end of a placement, with what the job's hold needs to know about its use."""

    tenant: str
    job_id: str
    attempt: int
    role: Role
    outcome: AttemptOutcome
    cause: FailureCause | None
    message: Sealed | None
    result: Result | None
    node_id: str | None
    used_gpu_ms: GpuMs
    billable_gpu_ms: GpuMs
    lost_gpu_ms: GpuMs


class SlotsFreed(Message):
    token: Token
    node_id: str


Command: TypeAlias = (
    RegisterNode
    | RetireNode
    | ObserveNodes
    | RequestPlacement
    | ClosePlacement
    | ReportStarted
    | ReportCheckpoint
    | ReportExit
    | ConfirmFreed
    | Tick
)
Event: TypeAlias = (
    NodeRegistered
    | NodeRetired
    | NodesObserved
    | NodeLost
    | PlacementQueued
    | WaitExplained
    | LeaseGranted
    | LeaseStarted
    | CheckpointAccepted
    | LeaseDraining
    | LeaseKilled
    | UsageSliced
    | UsageCredited
    | PlacementClosed
    | SlotsFreed
    | Rejected
    | Repeated
)
