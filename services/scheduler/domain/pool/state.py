"""The state of `pool`: nodes, works, the waiting queue, leases that are not closed and free yet."""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.account import Lane
from schemas.envelope import Reason
from schemas.node import DeviceFault, LeaseSeen, NodeDescription, NodeSeen, Seat, working_devices
from schemas.pool import CreditCause, EndAuthor, LeaseMember, LeaseRef, Placement
from schemas.sealed import Sealed
from schemas.streams import GLOBAL
from schemas.training import Checkpoint, ExpectedTime, Work, WorkDescription
from schemas.units import HOUR_MS, GpuMs, Ms, Tokens
from services.scheduler.domain.pool.usage import ChargedHour
from tunery.plan.durations import History

# Incarnations of a node remembered so that a late command of a dead agent is recognised.
INCARNATIONS_REMEMBERED_MAX: Final = 16

Standing: TypeAlias = Literal["up", "lost", "retired"]


class Node(Struct, frozen=True, kw_only=True):
    """A node of the pool. A lost node keeps its leases and gets no new ones."""

    description: NodeDescription  # description that its agent registered
    last_seen: Ms  # its last proof of life
    # leases that its agent listed then; None: it reports no elapsed time
    leases: tuple[LeaseSeen, ...] | None = None
    standing: Standing = "up"  # whether it lives
    gone_at: Ms = 0  # last time that it was lost, or left
    joining: bool = False  # its agent is reading the journal still
    leaving: bool = False  # its agent is about to end
    ends_at: Ms | None = None  # time at which its machine is taken away; None: no announcement
    warned: bool = False
    former: tuple[str, ...] = ()  # its older incarnations, newest first
    # why an operator, or the failures of jobs, keep new leases away from it
    cordon: Reason | None = None
    failed_jobs: tuple[str, ...] = ()  # different jobs that failed on it in a row, oldest first
    # faults of its devices, which get no new leases while they last
    faults: tuple[DeviceFault, ...] = ()
    key_number: int = 1  # number of the key by which it has proven its name
    slots_max: int = 0  # most slots that it has had, if it is elastic

    @property
    def devices(self) -> frozenset[int]:
        """Numbers of its devices that have no fault."""
        return working_devices(self.description.slots, self.faults)

    @property
    def is_grantable(self) -> bool:
        """Return whether the node may get new leases."""
        in_service = self.standing == "up" and self.cordon is None
        return in_service and not self.joining and not self.leaving and self.ends_at is None


class NodeFailure(Struct, frozen=True, kw_only=True):
    """A node on which attempts of a job failed, by no fault of the job."""

    node_id: str
    times: int  # number of failed attempts
    back_off_until: Ms | None  # end of the time in which the job avoids it; None: over


class Ending(Struct, frozen=True, kw_only=True):
    """The first order to end a lease. Later ones harden it and leave its author."""

    # ended_by, reason: who ended it, and why
    ended_by: EndAuthor
    reason: Reason
    deadline: Ms | None = None  # when a drain becomes a kill; None: it was a kill from the first


class Forecast(Struct, frozen=True, kw_only=True):
    """Planning data of a placement after its grant."""

    # memory_bytes, preemptions: see its `Placement`
    memory_bytes: int = 0
    preemptions: int = 0
    submitted_at: Ms = 0  # submission of its job
    # expected time from its start to its end
    expected: ExpectedTime = ExpectedTime(p50_ms=0, p90_ms=0)
    # estimate_ms, limit_ms: `p50_ms` and `p90_ms` of its `Placement`
    estimate_ms: Ms = 0
    limit_ms: Ms = 0
    # classes whose durations it counts in when it succeeds, the narrowest class first
    classes: tuple[str, ...] = ()


class Handover(Struct, frozen=True, kw_only=True):
    """Facts of a lease that its agents need to start it; they keep them from then on."""

    placement: Placement
    work: Work
    sealed_keys: Map[str, str] = Map()  # keys of the lease, by incarnation of the agent
    rendezvous: Sealed | None = None  # how agents of the other members reach that of the first


class Lease(Struct, frozen=True, kw_only=True):
    """A lease whose money is open, or whose slots are not all free."""

    ref: LeaseRef  # its reference in every event
    members: tuple[LeaseMember, ...]  # all nodes and slots that it was granted
    freed: tuple[str, ...] = ()  # nodes whose member is free again
    max_gpu_ms: GpuMs  # cap of its use
    # most of its use that is billed; None: its cap
    billed_gpu_ms_max: GpuMs | None = None
    # cap of the trained tokens that its job is billed; 0: they have no price
    max_tokens: Tokens = 0
    forecast: Forecast = Forecast()  # expectations of the planner
    # granted_at, started_at: times of the pool's clock
    granted_at: Ms
    started_at: Ms | None = None
    start_ms_max: Ms = 600_000  # longest time between the two, or from its admission on
    # wait: why its cluster has not admitted it; None: it does not wait
    wait: Reason | None = None
    waits_since: Ms | None = None
    wait_ms_max: Ms = HOUR_MS  # how long it may wait
    admitted_at: Ms | None = None  # when it waited no more
    work_id: str = ""  # id of the described work
    handover: Handover | None = None  # None once it has started
    prepared_bytes: int = 0  # bytes fetched and read for the start so far
    prepared_at: Ms | None = None  # last time at which these bytes were seen to grow; None: never
    # end of the time for which all members are proven to have run, without a break since the start.
    # A machine that slept has less elapsed time, and only that counts.
    alive_at: Ms = 0
    named: tuple[Checkpoint, ...] = ()  # checkpoints in its placement; empty once it has started
    last_manifest: str | None = None  # manifest of its last accepted checkpoint
    captured_ms: Ms = 0  # elapsed time at the capture of that checkpoint
    first_step: int = 0  # step of the checkpoint that it began with
    steps: int = 0  # number of steps that remained at its start
    done_steps: int = 0  # number of these steps in its last accepted checkpoint
    # tokens of the whole job in that checkpoint, or in the one that it began with
    trained_tokens: Tokens = 0
    sliced_tokens: Tokens = 0  # tokens in slices so far, including those before its start
    # used_gpu_ms, billable_gpu_ms: sliced so far
    used_gpu_ms: GpuMs = 0
    billable_gpu_ms: GpuMs = 0
    lost_gpu_ms: GpuMs = 0  # credited so far
    # hours of the whole job so far, oldest first, until the lease has ended
    charged: tuple[ChargedHour, ...] = ()
    ending: Ending | None = None  # the order to end, if it has one
    killed_at: Ms | None = None  # time of the order to kill it
    closed: bool = False  # its money has ended; the lease remains until its slots are free as well
    # a training that has succeeded, so that its job continues with an evaluation
    followed: bool = False

    @property
    def number(self) -> int:
        """Number of the lease in its pool."""
        return self.ref.token.lease

    @property
    def slots(self) -> int:
        """Slots of all members, freed or not: what its use is multiplied with."""
        return sum(member.slots for member in self.members)

    @property
    def node_ids(self) -> tuple[str, ...]:
        return tuple(member.node_id for member in self.members)

    @property
    def proven_ms(self) -> Ms:
        """Elapsed time that all members are proven to have run."""
        return 0 if self.started_at is None else self.alive_at - self.started_at

    @property
    def draining(self) -> bool:
        """Return whether the lease has its notice to end, and time until the deadline."""
        return self.ending is not None and self.ending.deadline is not None


class KeptSeat(Struct, frozen=True, kw_only=True):
    """Slots that a training has freed, and that are kept for the evaluation of its job."""

    # tenant, lane: tenant and lane of the job
    tenant: str
    lane: Lane
    seat: Seat  # the first member of the training; an evaluation runs on one node
    memory_bytes: int  # what each of the slots used
    # since, until: times of the pool's clock; the job asks for its evaluation within a second or so
    since: Ms
    until: Ms


class Invitation(Struct, frozen=True, kw_only=True):
    """A token with which a node gets its keys."""

    token_sha256: str  # hash of the token
    expires_at: Ms  # end of its validity
    public_key: str | None = None  # public key of the node that used the token; None: unused
    key_number: int = 0  # number of the last keys that the node got with any token; 0: none
    uses: int | None = None  # how many nodes may use it; None: the one that it is named after
    used: int = 0  # how many of them have


class Waiting(Struct, frozen=True, kw_only=True):
    placement: Placement  # requested placement
    # expected time, learnt from ended work; None: its estimate
    expected: ExpectedTime | None = None
    spot: bool | None = None  # see its `PlacementQueued`
    any_domain: bool = False  # it has waited long enough for nodes of its domain
    arrival: int  # order within a lane
    queued_at: Ms = 0  # time from which it waits
    bound: tuple[Seat, ...] = ()  # slots that leases were asked to free for it

    @property
    def expected_time(self) -> ExpectedTime:
        """How long it should take, by what has ended or by its estimate."""
        return self.expected or self.placement.estimated_time


class JobRefund(Struct, frozen=True, kw_only=True):
    """Refund of an ended job."""

    cause: CreditCause  # cause of the credit
    kept_gpu_ms: GpuMs = 0  # GPU time that stays charged


class Pool(Struct, frozen=True, kw_only=True, dict=True):
    """One pool. Keys of persistent maps are texts, as snapshots are JSON.

    In addition to its fields it may cache its planned pool (`carried`), which is no part of its
    value.
    """

    nodes: Map[str, Node] = Map()  # nodes by id
    leases: Map[str, Lease] = Map()  # leases by `lease_key`
    # keys of the leases with a member on a node, freed or not, by node id
    leases_of_nodes: Map[str, tuple[str, ...]] = Map()
    open: Map[str, str] = Map()  # key of the open lease of each job that has one, by job id
    # queued placement by job id; a job has at most one open placement
    waiting: Map[str, Waiting] = Map()
    kept: Map[str, KeptSeat] = Map()  # slots for evaluations that are not requested yet, by job id
    # works by job id, in the order of their description
    works: Map[str, tuple[WorkDescription, ...]] = Map()
    # highest attempt seen of each job, so that none is placed twice
    attempts: Map[str, int] = Map()
    # hours of jobs that have no open lease, by job id, oldest first
    charged: Map[str, tuple[ChargedHour, ...]] = Map()
    # observations that are in no record yet, in the order of their arrival
    deferred: tuple[NodeSeen, ...] = ()
    planning_deferred: bool = False  # the last record could not hold all that can start
    failures: Map[str, tuple[NodeFailure, ...]] = Map()  # nodes that failed under jobs, by job id
    # when replicas that wait may have nodes that failed under them, by job id
    excluded_until: Map[str, Ms] = Map()
    spot_until: Map[str, Ms] = Map()  # when placements that wait give up spot nodes, by job id
    # when waiting placements may have spot nodes again after losses, by job id
    spot_from: Map[str, Ms] = Map()
    # when placements that wait take nodes of any domain, by job id
    domain_until: Map[str, Ms] = Map()
    # when jobs lost spot nodes that they ran on, by job id, oldest first
    spot_losses: Map[str, tuple[Ms, ...]] = Map()
    spot_lost: tuple[Ms, ...] = ()  # when spot nodes of the pool were noticed or lost, oldest first
    # remaining refunds of ended jobs, by job id; more than one record can hold
    refunds: Map[str, JobRefund] = Map()
    durations: History = Map()  # ratios of actual to estimated time of ended work, by its class
    next_lease: int = 1  # number of the next lease
    arrivals: int = 0  # number of placements queued so far
    # number of the last withdrawn key, by node id; the pool `GLOBAL` has them for all pools of its
    # partition
    withdrawn: Map[str, int] = Map()
    # last invitation of each node, by node id; ended ones are dropped, except for keys with which
    # the node has not registered
    invitations: Map[str, Invitation] = Map()


Pools: TypeAlias = Map[str, Pool]
INITIAL: Final[Pools] = Map()


def withdrawn_keys(state: Pools) -> Map[str, int]:
    """Number of the last key that is withdrawn, by node id, as all pools of a partition know it."""
    everywhere = state.get(GLOBAL)
    return Map() if everywhere is None else everywhere.withdrawn


def lease_key(number: int) -> str:
    """Key of a lease in the pool's map."""
    return str(number)


def keys_by_node(
    leases: Iterable[Lease], known: Map[str, tuple[str, ...]] | None = None
) -> Map[str, tuple[str, ...]]:
    """Keys of leases by the nodes of all their members, added to those that are known."""
    by_node = Map() if known is None else known
    for lease in leases:
        for node_id in {*lease.node_ids}:
            keys = (*by_node.get(node_id, ()), lease_key(lease.number))
            by_node = by_node.set(node_id, keys)
    return by_node


KEPT: Final = "kept/"


def kept_key(job_id: str) -> str:
    """Key of slots that are kept for a job, among the planner's leases."""
    return f"{KEPT}{job_id}"


def held_members(lease: Lease) -> tuple[LeaseMember, ...]:
    """Members that still hold their slots."""
    return tuple(member for member in lease.members if member.node_id not in lease.freed)


def member_on(lease: Lease, node_id: str) -> LeaseMember | None:
    """The member on a node, where it still holds its slots."""
    return next((member for member in held_members(lease) if member.node_id == node_id), None)


def is_run_by(lease: Lease, incarnation: str) -> bool:
    """Return whether an agent of this incarnation runs a member of the lease."""
    return any(member.incarnation == incarnation for member in lease.members)


def leases_on(pool: Pool, node_id: str) -> tuple[Lease, ...]:
    """All that hold slots of a node, oldest first."""
    named = (pool.leases[key] for key in pool.leases_of_nodes.get(node_id, ()))
    on_node = (lease for lease in named if member_on(lease, node_id) is not None)
    return tuple(sorted(on_node, key=lambda lease: lease.number))


def open_leases(pool: Pool) -> tuple[Lease, ...]:
    """Return the leases whose money runs or may still run, oldest first."""
    running = (lease for lease in pool.leases.values() if not lease.closed)
    return tuple(sorted(running, key=lambda lease: lease.number))


def lease_of(pool: Pool, job_id: str, attempt: int) -> Lease | None:
    """The open lease of a placement."""
    lease = pool.leases.get(pool.open.get(job_id, ""))
    return lease if lease is not None and lease.ref.attempt == attempt else None


def work_of(pool: Pool, job_id: str, work_id: str) -> Work | None:
    """Return a described work, to which placements of the job may refer; None: there is none."""
    described = pool.works.get(job_id, ())
    return next((known.work for known in described if known.work_id == work_id), None)


def free_devices(node: Node, leases: Iterable[Lease]) -> list[int]:
    """Numbers of the devices of a node that work and none of these leases holds, ascending."""
    node_id, free = node.description.node_id, node.devices
    for lease in leases:
        member = member_on(lease, node_id)
        if member is not None:
            free = free.difference(member.devices)
    return sorted(free)
