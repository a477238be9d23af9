"""The leases that a node should run, according to its pool."""

from typing import TypeAlias

from immutables import Map
from msgspec import Struct

from schemas import assignments
from schemas.pool import LeaseMember, LeaseRef, Placement, Role, Token
from schemas.sealed import Sealed
from schemas.training import Checkpoint, Work

TargetState: TypeAlias = assignments.TargetState


class Grant(Struct, frozen=True, kw_only=True):
    """Lease of this node, with the placement and the work that it is for."""

    lease: LeaseRef
    member: LeaseMember  # the part of the lease on this node
    placement: Placement
    work: Work
    members: tuple[LeaseMember, ...] = ()  # all parts, in the lease's order

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
        return self.lease.job_id

    @property
    def attempt(self) -> int:
        """Attempt of the job."""
        return self.lease.attempt

    @property
    def role(self) -> Role:
        """Purpose of the lease: training, evaluation or serving."""
        return self.lease.role

    @property
    def node_id(self) -> str:
        return self.member.node_id

    @property
    def slots(self) -> int:
        """Slots of this node."""
        return self.member.slots

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Checkpoints that the work may resume from, newest first."""
        return self.placement.checkpoints


class Assignment(Struct, frozen=True, kw_only=True):
    """A lease on this node, and what the pool wants of its process now.

    `target` only hardens: from run to drain to kill.
    """

    grant: Grant
    target: TargetState = "run"
    sealed_keys: str = ""  # what the lease was given last, sealed to its agent; empty: nothing yet
    # how agents of the other members reach that of the first; None: it has not said so
    rendezvous: Sealed | None = None
    # correlation, traceparent: values of the request that its work follows from
    correlation: str | None = None
    traceparent: str | None = None


class NodeState(Struct, frozen=True, kw_only=True):
    """One node as its pool describes it."""

    node_id: str
    incarnation: str
    # offset, node_offset: journal offsets of the last record, and of the last one about this node
    offset: int = -1
    node_offset: int = -1
    registered: bool = False  # the pool has accepted this incarnation
    leaving: bool = False  # the pool grants this incarnation nothing more
    forgotten: bool = False  # the pool knows this incarnation no longer
    replaced: bool = False  # another incarnation registered after this one
    sender: str = ""  # principal that the agent sends as; empty: senders are not checked
    withdrawn: bool = False  # an operator withdrew the key that it has
    # leases whose member here is not free yet, by lease number
    assignments: Map[int, Assignment] = Map()
