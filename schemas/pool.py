"""Stream `pool` (key: pool, owner: scheduler): nodes, slots, leases, the waiting queue, usage.

Everything about an attempt goes to `pool` with its fencing token; only reactions tell `job`.
"""

from typing import Final, Literal, TypeAlias, get_args

from schemas.account import Lane
from schemas.enrolment import EnrolmentCommand, EnrolmentEvent
from schemas.envelope import Message, Part, Reason, Rejected, Repeated, Sha256, Tick
from schemas.lease_keys import LeaseKeysCommand, LeaseKeysEvent
from schemas.node import (
    Beneficiary,
    JoinNode,
    LeaveNode,
    NodeDescription,
    NodeEvent,
    NodeOrder,
    NodeSeen,
    NoticeNode,
    ReportDeviceFaults,
    WarnNode,
    WithdrawNodeKeys,
)
from schemas.sealed import Sealed
from schemas.training import (
    AttemptOutcome,
    AttemptStart,
    Checkpoint,
    Device,
    ExpectedTime,
    FailureCause,
    LeaseHardware,
    NodeConstraints,
    Result,
)
from schemas.units import GpuMs, Ms, Tokens
from schemas.works import DescribeWork, WorkForgotten, WorkKept

Role: TypeAlias = Literal["train", "eval", "serve"]
ROLES: Final[tuple[str, ...]] = get_args(Role)
CloseMode: TypeAlias = Literal["drain", "kill"]
# Who ended an attempt: `training` is its own process, `node` its machine or agent.
EndAuthor: TypeAlias = Literal["tenant", "budget", "scheduler", "node", "platform", "training"]
# Why a credit was given; the last two are of whole jobs.
CreditCause: TypeAlias = Literal[
    "lost",
    "preempted",
    "bad_node",
    "platform",
    "skipped_checkpoint",
    "oom",
    "correction",
    "platform_error",
    "attempts_exhausted",
]


class Token(Part):
    """Fencing token of a lease, compared by equality with the current one.

    pool: key of the pool.
    lease: number of the lease in that pool.
    """

    pool: str
    lease: int


class Placement(Part):
    """What one attempt of a job asks a pool for. A lease refers to it by (job, attempt).

    tenant: owner of the job.
    job_id: the job.
    attempt: counted by the job from 1; no number is used twice.
    role: what the lease is for.
    lane: service class of the job, fixed at its admission.
    slots: how many slots it needs at the same time, over all members of the lease.
    max_gpu_ms: cap of the lease's billable use.
    price_version: price book that the job was admitted with.
    work_id: the work, described before under this id.
    checkpoints: what it may go on from, newest first.
    excluded_nodes: nodes that failed under this job.
    first_submitted_at: when the job was submitted; a retry keeps its place by it.
    p50_ms: elapsed time that it is expected to need.
    p90_ms: elapsed time that it should not pass; at most its cap.
    device: kind of device that every slot must be.
    memory_bytes: what one slot needs, by estimate.
    weight: the tenant's share beside others in its lane.
    preemptions: how many attempts of the job were stopped by anyone but its tenant.
    start_ms_max: how long it may take from its grant to its start: its base model has to be read.
    max_tokens: cap of the trained tokens that its job is billed; 0: they have no price.
    constraints: which nodes it may run on, None: any.
    """

    tenant: str
    job_id: str
    attempt: int
    role: Role
    lane: Lane
    slots: int
    max_gpu_ms: GpuMs
    price_version: str
    work_id: Sha256
    checkpoints: tuple[Checkpoint, ...]
    excluded_nodes: tuple[str, ...]
    first_submitted_at: Ms
    p50_ms: Ms
    p90_ms: Ms
    device: Device
    memory_bytes: int
    weight: int = 1
    preemptions: int = 0
    start_ms_max: Ms = 600_000
    max_tokens: Tokens = 0
    constraints: NodeConstraints | None = None

    @property
    def estimated_time(self) -> ExpectedTime:
        """How long it should take by the estimate of its job."""
        return ExpectedTime(p50_ms=self.p50_ms, p90_ms=self.p90_ms)


class LeaseRef(Part):
    """Which lease, of which attempt, billed how: in all events of leases and of usage.

    token: its fencing token.
    tenant, job_id, attempt, role, lane, price_version: as in its `Placement`.
    hardware: of its nodes when it was granted; None: CPUs of which nothing else is known.
    """

    token: Token
    tenant: str
    job_id: str
    attempt: int
    role: Role
    lane: Lane
    price_version: str
    hardware: LeaseHardware | None = None


class LeaseMember(Part):
    """The part of a lease that is on one node. A lease has at most one member on a node.

    node_id: the node.
    incarnation: the agent that runs it; another one must not.
    slots: how many of the node's slots it holds.
    devices: numbers of the node's devices that it holds, one for each slot.
    """

    node_id: str
    incarnation: str
    slots: int
    devices: tuple[int, ...]


class AttemptEnd(Part):
    """How an attempt ended, who ended it, why, and what it used.

    outcome: what became of it.
    ended_by: who ended it; a tenant who ends it pays for what ran.
    reason: why it ended.
    cause: why it failed, where it failed.
    detail: what its process or agent said; it may quote tenant data.
    result: what a success left.
    node_ids: nodes that it ran on; empty where it never had a lease.
    used_gpu_ms, billable_gpu_ms, lost_gpu_ms: slots × elapsed; billed of it, credited of that.
    faulty_node: the one of them that it failed on, where that is known.
    """

    outcome: AttemptOutcome
    ended_by: EndAuthor
    reason: Reason
    cause: FailureCause | None = None
    detail: Sealed | None = None
    result: Result | None = None
    node_ids: tuple[str, ...] = ()
    used_gpu_ms: GpuMs = 0
    billable_gpu_ms: GpuMs = 0
    lost_gpu_ms: GpuMs = 0
    faulty_node: str | None = None

    @property
    def nodes_at_fault(self) -> tuple[str, ...]:
        """Those that a failure speaks against."""
        return self.node_ids if self.faulty_node is None else (self.faulty_node,)


class EndRequest(Part):
    """Asks for the end of one placement of a job.

    attempt: which placement.
    mode: whether it may write a checkpoint first.
    ended_by: who ends it; of several requests to end it, the first one's author counts.
    reason: why.
    """

    attempt: int
    mode: CloseMode
    ended_by: EndAuthor
    reason: Reason


# --- commands
class RegisterNode(Message):
    """An agent starts. Leases of the node's older incarnations end at the last proof of life.

    node: the node.
    joins: it gets leases from `JoinNode` on; otherwise at once.
    """

    node: NodeDescription
    joins: bool = False


class RetireNode(Message):
    """The agent leaves in order: it has stopped and reported everything it ran.

    node_id, incarnation: who leaves.
    """

    node_id: str
    incarnation: str


class ObserveNodes(Message):
    """Heartbeats, or their absence.

    seen: one entry for each node of which there is something new.
    """

    seen: tuple[NodeSeen, ...]


class ForgetWork(Message):
    """The job has ended: no placement will refer to its works any more.

    job_id: the job.
    refund: why all that the job is charged is given back; None: it is not.
    """

    job_id: str
    refund: CreditCause | None = None


class RequestPlacement(Message):
    """An attempt wants slots.

    placement: what it asks for.
    """

    placement: Placement


class ClosePlacement(Message):
    """Ends one placement. Repeats only harden (drain, then kill); on closed ones it is a no-op.

    job_id: the job.
    request: which of its placements, and how it is to end.
    """

    job_id: str
    request: EndRequest


class ReportRendezvous(Message):
    """The agent of the first member of a lease listens for those of the others.

    token: of the lease.
    incarnation: of the agent that reports.
    rendezvous: how they reach it.
    """

    token: Token
    incarnation: str
    rendezvous: Sealed


class ReportStarted(Message):
    """The process of a lease has begun to work.

    token: of the lease.
    incarnation: of the agent that reports.
    start: what the process said.
    """

    token: Token
    incarnation: str
    start: AttemptStart


class ReportCheckpoint(Message):
    """The process of a lease has written a checkpoint, and its agent has stored it.

    token: of the lease.
    incarnation: of the agent that reports.
    checkpoint: all its files are in object storage.
    """

    token: Token
    incarnation: str
    checkpoint: Checkpoint


class ReportExit(Message):
    """The process of a lease has ended, or never ran.

    token: of the lease.
    incarnation: of the agent that reports.
    outcome: as the agent sees it; the pool judges it by the orders that it gave before.
    elapsed_ms: the agent's monotonic time since the start; 0 where there was none.
    cause: why it failed, where it failed.
    detail: what the process or the agent said; it may quote tenant data.
    result: what a success left.
    keyless: it failed because its agent got no keys, without which it says no detail.
    faulty_node: the node of the lease on which it failed, where the agent knows.
    """

    token: Token
    incarnation: str
    outcome: AttemptOutcome
    elapsed_ms: Ms
    cause: FailureCause | None = None
    detail: Sealed | None = None
    result: Result | None = None
    keyless: bool = False
    faulty_node: str | None = None


class ConfirmFreed(Message):
    """Nothing of this lease runs on the node any more: its member there is free.

    token: of the lease.
    node_id, incarnation: which member, and the agent that reports.
    """

    token: Token
    node_id: str
    incarnation: str


# --- events
class NodeRegistered(Message):
    """The node is up in this incarnation.

    node: the node.
    joining: it gets nothing before `NodeJoined`.
    """

    node: NodeDescription
    joining: bool = False


class NodeRetired(Message):
    """The node has left in order and gets nothing until it registers again.

    node_id: the node.
    """

    node_id: str


class NodesObserved(Message):
    """Proof of life up to `last_seen`, for liveness and for usage slices.

    seen: as observed; only nodes that are known in this incarnation.
    """

    seen: tuple[NodeSeen, ...]


class NodeLost(Message):
    """The node was silent for too long; its leases have ended.

    node_id, incarnation: which agent.
    last_seen: its last proof of life.
    """

    node_id: str
    incarnation: str
    last_seen: Ms


class PlacementQueued(Message):
    """The placement waits in the queue of its pool.

    placement: what it asks for.
    expected: how long it should take, by what has ended; None: as its estimate says.
    spot: what its constraints say, and false while spot nodes cost it too much.
    spot_until: when it needs another node to be done in time; None: never.
    spot_from: until when it is kept off spot nodes after losses; None: it is not.
    domain_until: when it takes nodes of any domain; None: never, or it names none.
    """

    placement: Placement
    expected: ExpectedTime | None = None
    spot: bool | None = None
    spot_until: Ms | None = None
    spot_from: Ms | None = None
    domain_until: Ms | None = None


class WaitExplained(Message):
    """Why a placement waits, as older releases wrote it. Readers compute it from the queue now.

    tenant, job_id, attempt: which placement.
    reason: why.
    """

    tenant: str
    job_id: str
    attempt: int
    reason: Reason


class LeaseGranted(Message):
    """A waiting placement gets its slots. What to run is in the placement and in its work.

    lease: the lease, which names the placement by (job, attempt).
    members: one for each node.
    notice_ms: elapsed time that the pool must learn of at once, because the cap is near.
    """

    lease: LeaseRef
    members: tuple[LeaseMember, ...]
    notice_ms: Ms = 0


class RendezvousOpened(Message):
    """The members of a lease can meet.

    lease: the lease.
    rendezvous: how the agents of the others reach that of the first.
    """

    lease: LeaseRef
    rendezvous: Sealed


class LeaseStarted(Message):
    """The process has begun to work: use counts from here.

    lease: the lease.
    start: what the process said.
    """

    lease: LeaseRef
    start: AttemptStart


class CheckpointAccepted(Message):
    """The checkpoint exists: later attempts may go on from it.

    lease: the lease.
    checkpoint: with `captured_ms` clamped to the lease.
    """

    lease: LeaseRef
    checkpoint: Checkpoint


class LeaseDraining(Message):
    """The notice is out: finish the step, checkpoint, exit before the deadline, or be killed.

    lease: the lease.
    deadline: when it is killed.
    ended_by, reason: who ended it, and why.
    beneficiary: the placement that needs its slots, where the scheduler ended it for one.
    """

    lease: LeaseRef
    deadline: Ms
    ended_by: EndAuthor
    reason: Reason
    beneficiary: Beneficiary | None = None


class LeaseKilled(Message):
    """The agents must kill what runs under this lease, if anything does.

    lease: the lease.
    ended_by, reason: who ended it, and why.
    """

    lease: LeaseRef
    ended_by: EndAuthor
    reason: Reason


class UsageSliced(Message):
    """Use of one lease in one UTC hour.

    lease: the lease.
    hour_utc: hours since the epoch.
    used_gpu_ms: slots × elapsed.
    billable_gpu_ms: what of it is billed; capped by `max_gpu_ms` over all slices of the lease.
    tokens: trained on up to a checkpoint or the end, and billed by no slice before.
    """

    lease: LeaseRef
    hour_utc: int
    used_gpu_ms: GpuMs
    billable_gpu_ms: GpuMs
    tokens: Tokens = 0


class UsageCredited(Message):
    """Billed use that is given back, because the platform lost or failed the work.

    lease: the lease that it was used by, or at whose start it was found to be lost.
    hour_utc: hour whose use it takes back, in hours since the epoch; in records of before
      November 22nd, 2026, the hour in which the lease ended.
    lost_gpu_ms: how much.
    cause: why it is given.
    used_by: the lease that it was used by, None: it is `lease`. Its price is given back.
    lost_tokens: trained tokens that are given back.
    """

    lease: LeaseRef
    hour_utc: int
    lost_gpu_ms: GpuMs
    cause: CreditCause
    used_by: LeaseRef | None = None
    lost_tokens: Tokens = 0


class PlacementClosed(Message):
    """The one end of a placement.

    tenant, job_id, attempt, role: which placement.
    end: how it ended, with what the job's hold needs to know about its use.
    """

    tenant: str
    job_id: str
    attempt: int
    role: Role
    end: AttemptEnd


class MemberFreed(Message):
    """The slots of one member of a lease are free again.

    lease: the lease.
    node_id: which member.
    """

    lease: LeaseRef
    node_id: str


Command: TypeAlias = (
    RegisterNode
    | JoinNode
    | LeaveNode
    | NoticeNode
    | WarnNode
    | ReportDeviceFaults
    | RetireNode
    | NodeOrder
    | WithdrawNodeKeys
    | EnrolmentCommand
    | LeaseKeysCommand
    | ObserveNodes
    | DescribeWork
    | ForgetWork
    | RequestPlacement
    | ClosePlacement
    | ReportRendezvous
    | ReportStarted
    | ReportCheckpoint
    | ReportExit
    | ConfirmFreed
    | Tick
)
Event: TypeAlias = (
    NodeEvent
    | EnrolmentEvent
    | LeaseKeysEvent
    | NodeRegistered
    | NodeRetired
    | NodesObserved
    | NodeLost
    | WorkKept
    | WorkForgotten
    | PlacementQueued
    | WaitExplained
    | LeaseGranted
    | RendezvousOpened
    | LeaseStarted
    | CheckpointAccepted
    | LeaseDraining
    | LeaseKilled
    | UsageSliced
    | UsageCredited
    | PlacementClosed
    | MemberFreed
    | Rejected
    | Repeated
)
