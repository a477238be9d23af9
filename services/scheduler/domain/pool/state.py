"""The state of `pool`: nodes, works, the waiting queue, leases that are not closed and free yet."""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.envelope import Reason
from schemas.model import GLOBAL
from schemas.node import (
    DeviceFault,
    LeaseSeen,
    NodeDescription,
    NodeSeen,
    Seat,
    working_devices,
)
from schemas.pool import CreditCause, EndAuthor, LeaseMember, LeaseRef, Placement
from schemas.training import Checkpoint, ExpectedTime, WorkDescription
from schemas.units import GpuMs, Ms, Tokens
from services.scheduler.domain.pool.usage import ChargedHour
from tunery.plan.durations import History

# Incarnations of a node remembered so that a late command of a dead agent is recognised.
INCARNATIONS_REMEMBERED_MAX: Final = 16

Standing: TypeAlias = Literal["up", "lost", "retired"]


class Node(Struct, frozen=True, kw_only=True):
    """A node of the pool. A lost node keeps what it holds and gets nothing new.

    description: as its agent registered it.
    last_seen: its last proof of life.
    leases: what its agent listed then; None: it says nothing of elapsed time.
    standing: whether it lives.
    joining: its agent is reading the journal still.
    leaving: its agent is about to end.
    ends_at: when its machine is taken away; None: nobody said so.
    former: its older incarnations, newest first.
    cordon: why an operator, or the failures of jobs, keep new leases away from it.
    failed_jobs: different jobs that failed on it in a row, oldest first.
    faults: of its devices, which get no new leases while they have them.
    key_number: of the key by which it has proven its name.
    """

    description: NodeDescription
    last_seen: Ms
    leases: tuple[LeaseSeen, ...] | None = None
    standing: Standing = "up"
    joining: bool = False
    leaving: bool = False
    ends_at: Ms | None = None
    warned: bool = False
    former: tuple[str, ...] = ()
    cordon: Reason | None = None
    failed_jobs: tuple[str, ...] = ()
    faults: tuple[DeviceFault, ...] = ()
    key_number: int = 1

    @property
    def devices(self) -> frozenset[int]:
        """Numbers of its devices that have no fault."""
        return working_devices(self.description.slots, self.faults)

    @property
    def is_grantable(self) -> bool:
        """Whether it may get new leases."""
        in_service = self.standing == "up" and self.cordon is None
        return in_service and not self.joining and not self.leaving and self.ends_at is None


class NodeFailure(Struct, frozen=True, kw_only=True):
    """A node on which attempts of a job failed, by no fault of the job.

    node_id: the node.
    times: how many attempts.
    back_off_until: until then the job keeps away from it; None: that is over.
    """

    node_id: str
    times: int
    back_off_until: Ms | None


class Ending(Struct, frozen=True, kw_only=True):
    """The first order to end a lease. Later ones harden it and leave its author.

    ended_by, reason: who ended it, and why.
    deadline: when a drain becomes a kill; None: it was a kill from the first.
    """

    ended_by: EndAuthor
    reason: Reason
    deadline: Ms | None = None


class Forecast(Struct, frozen=True, kw_only=True):
    """What the planner needs to know of a placement after its grant.

    memory_bytes, preemptions: as in its `Placement`.
    expected: how long it should take from its start, before anything of it is done.
    estimate_ms, limit_ms: what its `Placement` has as `p50_ms` and `p90_ms`.
    classes: what it teaches about when it succeeds, the narrowest class first.
    """

    memory_bytes: int = 0
    preemptions: int = 0
    expected: ExpectedTime = ExpectedTime(p50_ms=0, p90_ms=0)
    estimate_ms: Ms = 0
    limit_ms: Ms = 0
    classes: tuple[str, ...] = ()


class Lease(Struct, frozen=True, kw_only=True):
    """A lease whose money is open, or whose slots are not all free.

    ref: names it in every event.
    members: all that it was granted.
    freed: nodes whose member is free again.
    max_gpu_ms: cap of its billable use.
    max_tokens: cap of the trained tokens that its job is billed; 0: they have no price.
    forecast: what the planner expects of it.
    granted_at, started_at: by the pool's clock.
    start_ms_max: from the one to the other.
    work_id: the work, described under this id.
    prepared_bytes: what was fetched and read for the start so far.
    prepared_at: when that was last seen to grow; None: never.
    alive_at: until when all members are proven to have run, if they ran without a break since
        the start. A machine that slept has less elapsed time than that, and it counts.
    named: checkpoints in its placement; empty once it has started.
    last_manifest: of its last accepted checkpoint.
    captured_ms: elapsed at the capture of that checkpoint.
    first_step: of the checkpoint that it began with.
    steps: how many it began with still to do.
    done_steps: how many of them its last accepted checkpoint has.
    trained_tokens: of the whole job, as of that checkpoint or the one that it began with.
    sliced_tokens: what of them slices have; those before its start count.
    used_gpu_ms, billable_gpu_ms: sliced so far.
    lost_gpu_ms: credited so far.
    charged: hours of the whole job so far, oldest first; they are here until the lease has ended.
    ending: the order to end, if it has one.
    killed_at: when it was ordered to be killed.
    closed: its money has ended; it is here until its slots are free as well.
    """

    ref: LeaseRef
    members: tuple[LeaseMember, ...]
    freed: tuple[str, ...] = ()
    max_gpu_ms: GpuMs
    max_tokens: Tokens = 0
    forecast: Forecast = Forecast()
    granted_at: Ms
    started_at: Ms | None = None
    start_ms_max: Ms = 600_000
    work_id: str = ""
    prepared_bytes: int = 0
    prepared_at: Ms | None = None
    alive_at: Ms = 0
    named: tuple[Checkpoint, ...] = ()
    last_manifest: str | None = None
    captured_ms: Ms = 0
    first_step: int = 0
    steps: int = 0
    done_steps: int = 0
    trained_tokens: Tokens = 0
    sliced_tokens: Tokens = 0
    used_gpu_ms: GpuMs = 0
    billable_gpu_ms: GpuMs = 0
    lost_gpu_ms: GpuMs = 0
    charged: tuple[ChargedHour, ...] = ()
    ending: Ending | None = None
    killed_at: Ms | None = None
    closed: bool = False

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
        """Nodes of all members."""
        return tuple(member.node_id for member in self.members)

    @property
    def proven_ms(self) -> Ms:
        """Elapsed time that all members are proven to have run."""
        return 0 if self.started_at is None else self.alive_at - self.started_at

    @property
    def draining(self) -> bool:
        """It has its notice, and time until the deadline."""
        return self.ending is not None and self.ending.deadline is not None


class Invitation(Struct, frozen=True, kw_only=True):
    """A token with which a node gets its keys.

    token_sha256: of the token.
    expires_at: its end.
    public_key: of whom the token was used by; None: it was not.
    key_number: of the last keys that the node got with any token; 0: none.
    """

    token_sha256: str
    expires_at: Ms
    public_key: str | None = None
    key_number: int = 0


class Waiting(Struct, frozen=True, kw_only=True):
    """A placement in the queue.

    placement: what it asks for.
    expected: how long it should take by what has ended; None: as its estimate says.
    arrival: orders a lane.
    bound: slots that leases were told to free for it.
    spot: as in its `PlacementQueued`.
    any_domain: it has waited long enough for nodes of its domain.
    """

    placement: Placement
    expected: ExpectedTime | None = None
    spot: bool | None = None
    any_domain: bool = False
    arrival: int
    bound: tuple[Seat, ...] = ()

    @property
    def expected_time(self) -> ExpectedTime:
        """How long it should take, by what has ended or by its estimate."""
        return self.expected or self.placement.estimated_time


class Pool(Struct, frozen=True, kw_only=True, dict=True):
    """One pool. Keys of persistent maps are texts, as snapshots are JSON.

    Beside its fields it may know its planned pool (`carried`), which is no part of its value.

    nodes: by node id.
    leases: by `lease_key`.
    open: key of the open lease of each job that has one, by job id.
    waiting: by job id; a job has at most one open placement.
    works: by job id, in the order of their description.
    attempts: highest attempt seen of each job, so that none is placed twice.
    charged: hours of jobs that have no open lease, by job id, oldest first.
    deferred: observations that no record has held yet, in the order of their arrival.
    planning_deferred: the last record could not hold all that can start.
    failures: nodes that failed under jobs, by job id.
    excluded_until: when replicas that wait may have nodes that failed under them, by job id.
    spot_until: when placements that wait give up spot nodes, by job id.
    spot_from: until when placements that wait are kept off spot nodes after losses, by job id.
    domain_until: when placements that wait take nodes of any domain, by job id.
    spot_losses: when jobs lost spot nodes that they ran on, by job id, oldest first.
    spot_lost: when spot nodes of the pool were noticed or lost, oldest first.
    refunds: why ended jobs are given back all, by job id; here while one record cannot hold it.
    durations: how much longer than estimated ended work took, by its class.
    next_lease: number of the next lease.
    arrivals: placements queued so far.
    withdrawn: number of the last key that is withdrawn, by node id; of the pool `GLOBAL`, for all
        pools of its partition.
    invitations: the last one of each node, by node id; those that ended are dropped, but
      for keys with which the node has not registered.
    """

    nodes: Map[str, Node] = Map()
    leases: Map[str, Lease] = Map()
    open: Map[str, str] = Map()
    waiting: Map[str, Waiting] = Map()
    works: Map[str, tuple[WorkDescription, ...]] = Map()
    attempts: Map[str, int] = Map()
    charged: Map[str, tuple[ChargedHour, ...]] = Map()
    deferred: tuple[NodeSeen, ...] = ()
    planning_deferred: bool = False
    failures: Map[str, tuple[NodeFailure, ...]] = Map()
    excluded_until: Map[str, Ms] = Map()
    spot_until: Map[str, Ms] = Map()
    spot_from: Map[str, Ms] = Map()
    domain_until: Map[str, Ms] = Map()
    spot_losses: Map[str, tuple[Ms, ...]] = Map()
    spot_lost: tuple[Ms, ...] = ()
    refunds: Map[str, CreditCause] = Map()
    durations: History = Map()
    next_lease: int = 1
    arrivals: int = 0
    withdrawn: Map[str, int] = Map()
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


def held_members(lease: Lease) -> tuple[LeaseMember, ...]:
    """Members that still hold their slots."""
    return tuple(member for member in lease.members if member.node_id not in lease.freed)


def member_on(lease: Lease, node_id: str) -> LeaseMember | None:
    """The member on a node, where it still holds its slots."""
    return next((member for member in held_members(lease) if member.node_id == node_id), None)


def is_run_by(lease: Lease, incarnation: str) -> bool:
    """Whether an agent of this incarnation runs a member of the lease."""
    return any(member.incarnation == incarnation for member in lease.members)


def leases_on(pool: Pool, node_id: str) -> tuple[Lease, ...]:
    """All that hold slots of a node, oldest first."""
    on_node = (lease for lease in pool.leases.values() if member_on(lease, node_id) is not None)
    return tuple(sorted(on_node, key=lambda lease: lease.number))


def open_leases(pool: Pool) -> tuple[Lease, ...]:
    """Those whose money runs or may still run, oldest first."""
    running = (lease for lease in pool.leases.values() if not lease.closed)
    return tuple(sorted(running, key=lambda lease: lease.number))


def lease_of(pool: Pool, job_id: str, attempt: int) -> Lease | None:
    """The open lease of a placement."""
    lease = pool.leases.get(pool.open.get(job_id, ""))
    return lease if lease is not None and lease.ref.attempt == attempt else None


def is_described(pool: Pool, job_id: str, work_id: str) -> bool:
    """Whether placements of the job may refer to this work."""
    return any(described.work_id == work_id for described in pool.works.get(job_id, ()))


def free_devices(node: Node, leases: Iterable[Lease]) -> list[int]:
    """Numbers of the devices of a node that work and none of these leases holds, ascending."""
    node_id, free = node.description.node_id, node.devices
    for lease in leases:
        member = member_on(lease, node_id)
        if member is not None:
            free = free.difference(member.devices)
    return sorted(free)
