"""The leases that a node should run, according to the `pool` journal."""

from typing import Literal, TypeAlias

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from schemas.pool import LeaseMember, LeaseRef, Placement, Role, Token
from schemas.sealed import Sealed
from schemas.training import Checkpoint, Work, WorkDescription

TargetState: TypeAlias = Literal["run", "drain", "kill"]


class Grant(Struct, frozen=True, kw_only=True):
    """What an agent needs to run its member of a lease.

    lease: the lease.
    member: its part on this node.
    placement: what the lease was granted for.
    work: what the placement refers to.
    members: all of the lease, in its order.
    """

    lease: LeaseRef
    member: LeaseMember
    placement: Placement
    work: Work
    members: tuple[LeaseMember, ...] = ()

    @property
    def token(self) -> Token:
        """Fencing token of the lease."""
        return self.lease.token

    @property
    def tenant(self) -> str:
        """Owner of the job."""
        return self.lease.tenant

    @property
    def job_id(self) -> str:
        """The job."""
        return self.lease.job_id

    @property
    def attempt(self) -> int:
        """Attempt of the job."""
        return self.lease.attempt

    @property
    def role(self) -> Role:
        """What the lease is for."""
        return self.lease.role

    @property
    def node_id(self) -> str:
        """This node."""
        return self.member.node_id

    @property
    def slots(self) -> int:
        """Slots of this node."""
        return self.member.slots

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """What it may go on from, newest first."""
        return self.placement.checkpoints


class QueuedPlacement(Struct, frozen=True, kw_only=True):
    """The part of a waiting placement in the pool's snapshots that agents read."""

    placement: Placement


class PoolSnapshot(Struct, frozen=True, kw_only=True):
    """The part of a pool in the scheduler's snapshots that agents read.

    waiting: by job id.
    works: works of the pool's open jobs by job id.
    """

    waiting: Map[str, QueuedPlacement]
    works: Map[str, tuple[WorkDescription, ...]]


class Assignment(Struct, frozen=True, kw_only=True):
    """A lease on this node, and what the pool wants of its process now.

    `target` only hardens: from run to drain to kill.
    sealed_keys: what the lease was given last, sealed to its agent; empty: nothing yet.
    rendezvous: how agents of the other members reach that of the first; None: it has not said so.
    """

    grant: Grant
    target: TargetState = "run"
    sealed_keys: str = ""
    rendezvous: Sealed | None = None


class NodeState(Struct, frozen=True, kw_only=True):
    """One node as the journal describes it.

    registered: the pool has accepted this incarnation
    leaving: the pool grants this incarnation nothing more
    forgotten: the pool knows this incarnation no longer
    replaced: another incarnation registered after this one
    sender: as whom the agent sends; empty: nobody checks that
    withdrawn: an operator withdrew the key that it has
    assignments: leases whose member here is not free yet, by lease number
    placements: waiting placements of the pool by job id; a grant refers to one
    works: works of the pool's open jobs by job id; a placement refers to one
    """

    node_id: str
    incarnation: str
    registered: bool = False
    leaving: bool = False
    forgotten: bool = False
    replaced: bool = False
    sender: str = ""
    withdrawn: bool = False
    assignments: Map[int, Assignment] = Map()
    placements: Map[str, Placement] = Map()
    works: Map[str, tuple[WorkDescription, ...]] = Map()


def state_of_snapshot(state: NodeState, snapshot: PoolSnapshot | None) -> NodeState:
    """What a new incarnation, of this state, knows of its pool; None: nothing."""
    if snapshot is None:
        return state
    placements = {job_id: queued.placement for job_id, queued in snapshot.waiting.items()}
    return replace(state, placements=Map(placements), works=snapshot.works)
