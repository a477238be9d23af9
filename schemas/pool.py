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
    ResizeNode,
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
# What a lease lacks that its cluster has not admitted; `queue`: the cluster has not looked at it.
AdmissionCause: TypeAlias = Literal["queue", "quota", "topology", "provisioning"]
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
    "estimate_exceeded",
]


class Token(Part):
    """Fencing token of a lease, compared by equality with the current one."""

    pool: str  # key of the pool
    lease: int  # number of the lease in that pool


class Placement(Part):
    """Request of one attempt of a job to a pool. A lease refers to it by (job, attempt)."""

    tenant: str  # owner of the job
    job_id: str
    attempt: int  # counted by the job from 1; no number is used twice
    role: Role  # what the lease is for
    lane: Lane  # service class of the job, fixed at its admission
    slots: int  # how many slots it needs at the same time, over all members of the lease
    max_gpu_ms: GpuMs  # cap of the lease's billable use
    price_version: str  # price book that the job was admitted with
    work_id: Sha256  # the work, described before under this id
    checkpoints: tuple[Checkpoint, ...]  # what it may continue from, newest first
    excluded_nodes: tuple[str, ...]  # nodes that failed under this job
    first_submitted_at: Ms  # when the job was submitted; a retry keeps its place by it
    p50_ms: Ms  # elapsed time that it is expected to need
    p90_ms: Ms  # elapsed time that it should not pass; at most its cap
    device: Device  # kind of device that every slot must be
    memory_bytes: int  # what one slot needs, by estimate
    weight: int = 1  # the tenant's weight in the fair sharing of its lane
    preemptions: int = 0  # how many attempts of the job were stopped by anyone but its tenant
    # how long it may take from its grant to its start: its base model has to be read
    start_ms_max: Ms = 600_000
    # cap of the trained tokens that its job is billed; 0: they have no price
    max_tokens: Tokens = 0
    constraints: NodeConstraints | None = None  # constraints on nodes; None: any node
    # most of the lease's use that is billed, while it may use its cap; None: all of that
    billed_gpu_ms_max: GpuMs | None = None

    @property
    def estimated_time(self) -> ExpectedTime:
        """How long it should take by the estimate of its job."""
        return ExpectedTime(p50_ms=self.p50_ms, p90_ms=self.p90_ms)


class LeaseRef(Part):
    """Identity and billing attributes of a lease, in all events of leases and of usage."""

    token: Token  # its fencing token
    # tenant, job_id, attempt, role, lane, price_version: see its `Placement`
    tenant: str
    job_id: str
    attempt: int
    role: Role
    lane: Lane
    price_version: str
    # hardware of its nodes at the grant; None: CPUs of which nothing else is known
    hardware: LeaseHardware | None = None


class LeaseMember(Part):
    """The part of a lease that is on one node. A lease has at most one member on a node."""

    node_id: str
    incarnation: str  # the agent that runs it; another one must not
    slots: int  # how many of the node's slots it holds
    devices: tuple[int, ...]  # numbers of the node's devices that it holds, one for each slot


class AttemptEnd(Part):
    """How an attempt ended, who ended it, why, and what it used."""

    outcome: AttemptOutcome  # what became of it
    ended_by: EndAuthor  # who ended it; a tenant who ends it pays for what ran
    reason: Reason  # why it ended
    cause: FailureCause | None = None  # why it failed, where it failed
    detail: Sealed | None = None  # what its process or agent said; it may quote tenant data
    result: Result | None = None  # what a success left
    node_ids: tuple[str, ...] = ()  # nodes that it ran on; empty where it never had a lease
    # used_gpu_ms, billable_gpu_ms, lost_gpu_ms: slots × elapsed time, what of it was billed, and
    # what of that was credited
    used_gpu_ms: GpuMs = 0
    billable_gpu_ms: GpuMs = 0
    lost_gpu_ms: GpuMs = 0
    faulty_node: str | None = None  # node of the lease on which it failed, where that is known

    @property
    def nodes_at_fault(self) -> tuple[str, ...]:
        """Nodes that a failure of the lease counts against: the faulty one if known, else all."""
        return self.node_ids if self.faulty_node is None else (self.faulty_node,)


class ClusterWait(Part):
    """Why a cluster has not admitted a lease."""

    cause: AdmissionCause
    condition: str = ""  # what the condition of the cluster's own object says


class EndRequest(Part):
    """Asks for the end of one placement of a job."""

    attempt: int  # number of the attempt
    mode: CloseMode  # whether it may write a checkpoint first
    ended_by: EndAuthor  # who ends it; of several requests to end it, the first one's author counts
    reason: Reason


# --- commands
class RegisterNode(Message):
    """An agent starts. Leases of the node's older incarnations end at the last proof of life."""

    node: NodeDescription
    joins: bool = False  # it gets leases from `JoinNode` on; otherwise at once


class RetireNode(Message):
    """The agent leaves in order: it has stopped and reported everything it ran."""

    # node_id, incarnation: who leaves
    node_id: str
    incarnation: str


class ObserveNodes(Message):
    """Heartbeats, or their absence."""

    seen: tuple[NodeSeen, ...]  # one entry for each node of which there is something new


class ForgetWork(Message):
    """The job has ended: no placement will refer to its works any more."""

    job_id: str
    # why what it is charged is given back, but for `kept_gpu_ms`; None: it is not
    refund: CreditCause | None = None
    kept_gpu_ms: GpuMs = 0


class RequestPlacement(Message):
    """An attempt wants slots."""

    placement: Placement  # what it asks for


class ClosePlacement(Message):
    """Ends one placement. Repeats only harden (drain, then kill); on closed ones it is a no-op."""

    job_id: str
    request: EndRequest  # the placement, and how it is to end


class ReportRendezvous(Message):
    """The agent of the first member of a lease listens for those of the others."""

    token: Token  # token of the lease
    incarnation: str  # incarnation of the agent that reports
    rendezvous: Sealed  # how they reach it


class ReportWait(Message):
    """A lease of an elastic node waits until its cluster admits it, or does so no more."""

    token: Token  # token of the lease
    incarnation: str  # incarnation of the agent that reports
    wait: ClusterWait | None = None  # None: it is admitted


class ReportStarted(Message):
    """The process of a lease has begun to work."""

    token: Token  # token of the lease
    incarnation: str  # incarnation of the agent that reports
    start: AttemptStart  # what the process said


class ReportCheckpoint(Message):
    """The process of a lease has written a checkpoint, and its agent has stored it."""

    token: Token  # token of the lease
    incarnation: str  # incarnation of the agent that reports
    checkpoint: Checkpoint  # all its files are in object storage


class ReportExit(Message):
    """The process of a lease has ended, or never ran."""

    token: Token  # token of the lease
    incarnation: str  # incarnation of the agent that reports
    # outcome that the agent reports; the pool corrects it by its earlier orders
    outcome: AttemptOutcome
    elapsed_ms: Ms  # the agent's monotonic time since the start; 0 where there was none
    cause: FailureCause | None = None  # why it failed, where it failed
    detail: Sealed | None = None  # what the process or the agent said; it may quote tenant data
    result: Result | None = None  # what a success left
    # it failed because its agent got no keys, without which it says no detail
    keyless: bool = False
    # the node of the lease on which it failed, where the agent knows
    faulty_node: str | None = None


class ConfirmFreed(Message):
    """Nothing of this lease runs on the node any more: its member there is free."""

    token: Token  # token of the lease
    # node_id, incarnation: the member, and the agent that reports
    node_id: str
    incarnation: str


# --- events
class NodeRegistered(Message):
    """The node is up in this incarnation."""

    node: NodeDescription
    joining: bool = False  # it gets nothing before `NodeJoined`


class NodeRetired(Message):
    """The node has left in order and gets nothing until it registers again."""

    node_id: str


class NodesObserved(Message):
    """Proof of life up to `last_seen`, for liveness and for usage slices."""

    seen: tuple[NodeSeen, ...]  # the observations, only of nodes that are known in this incarnation


class NodeLost(Message):
    """The node was silent for too long; its leases have ended."""

    # node_id, incarnation: the agent
    node_id: str
    incarnation: str
    last_seen: Ms  # its last proof of life


class PlacementQueued(Message):
    """The placement waits in the queue of its pool."""

    placement: Placement  # what it asks for
    # how long it should take, by what has ended; None: as its estimate says
    expected: ExpectedTime | None = None
    # whether it may have spot nodes: what its constraints say, and false while they cost it too
    # much
    spot: bool | None = None
    spot_until: Ms | None = None  # when it needs another node to be done in time; None: never
    # end of the time in which it avoids spot nodes after losses; None: it does not
    spot_from: Ms | None = None
    # when it takes nodes of any domain; None: never, or it names none
    domain_until: Ms | None = None


class WaitExplained(Message):
    """Why a placement waits, as older releases wrote it. Readers compute it from the queue now."""

    # tenant, job_id, attempt: the placement
    tenant: str
    job_id: str
    attempt: int
    reason: Reason


class LeaseGranted(Message):
    """A waiting placement gets its slots. What to run is in the placement and in its work."""

    lease: LeaseRef  # the lease, which names the placement by (job, attempt)
    members: tuple[LeaseMember, ...]  # one for each node
    notice_ms: Ms = 0  # elapsed time that the pool must learn of at once, because the cap is near


class RendezvousOpened(Message):
    """The members of a lease can meet."""

    lease: LeaseRef
    rendezvous: Sealed  # how the agents of the others reach that of the first


class LeaseWaits(Message):
    """The cluster has not admitted the lease, which has no limit to its start meanwhile."""

    lease: LeaseRef
    since: Ms  # when it was first known to wait
    reason: Reason


class LeaseAdmitted(Message):
    """The cluster has admitted a lease that waited: the time to its start counts from here."""

    lease: LeaseRef


class LeaseStarted(Message):
    """The process has begun to work: use counts from here."""

    lease: LeaseRef
    start: AttemptStart  # what the process said


class CheckpointAccepted(Message):
    """The checkpoint exists: later attempts may continue from it."""

    lease: LeaseRef
    checkpoint: Checkpoint  # with `captured_ms` clamped to the lease


class LeaseDraining(Message):
    """The notice is out: finish the step, checkpoint, exit before the deadline, or be killed."""

    lease: LeaseRef
    deadline: Ms  # when it is killed
    # ended_by, reason: who ended it, and why
    ended_by: EndAuthor
    reason: Reason
    # the placement that needs its slots, where the scheduler ended it for one
    beneficiary: Beneficiary | None = None


class LeaseKilled(Message):
    """The agents must kill what runs under this lease, if anything does."""

    lease: LeaseRef
    # ended_by, reason: who ended it, and why
    ended_by: EndAuthor
    reason: Reason


class UsageSliced(Message):
    """Use of one lease in one UTC hour."""

    # lease, hour_utc: the lease, and the hour since the epoch
    lease: LeaseRef
    hour_utc: int
    used_gpu_ms: GpuMs  # slots × elapsed
    # what of it is billed; capped by `max_gpu_ms` over all slices of the lease
    billable_gpu_ms: GpuMs
    tokens: Tokens = 0  # trained on up to a checkpoint or the end, and billed by no slice before


class UsageCredited(Message):
    """Billed use that is given back, because the platform lost or failed the work."""

    lease: LeaseRef  # the lease that it was used by, or at whose start it was found to be lost
    # hour whose use it takes back; in records of before 2026-11-22, of the lease's end
    hour_utc: int
    # lost_gpu_ms, cause: how much is given back, and why
    lost_gpu_ms: GpuMs
    cause: CreditCause
    # the lease that it was used by, None: it is `lease`. Its price is given back.
    used_by: LeaseRef | None = None
    lost_tokens: Tokens = 0  # trained tokens that are given back
    kept_gpu_ms: GpuMs = 0  # as in `ForgetWork`


class PlacementClosed(Message):
    """The one end of a placement."""

    # tenant, job_id, attempt, role: the placement
    tenant: str
    job_id: str
    attempt: int
    role: Role
    end: AttemptEnd  # how it ended, with what the job's hold needs to know about its use


class MemberFreed(Message):
    """The slots of one member of a lease are free again."""

    lease: LeaseRef
    node_id: str  # node of the member


Command: TypeAlias = (
    RegisterNode
    | JoinNode
    | LeaveNode
    | NoticeNode
    | WarnNode
    | ReportDeviceFaults
    | ResizeNode
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
    | ReportWait
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
    | LeaseWaits
    | LeaseAdmitted
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
