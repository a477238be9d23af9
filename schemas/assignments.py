"""Records of the topic `assignments` (key: agent): what the pool wants of each node.

The scheduler writes them from its state of `pool`, so an agent reads no journal. Offsets are those
of the pool's journal. A record with a lower one than an agent has read is late, and says nothing.
"""

from typing import Literal, TypeAlias

from schemas.envelope import Part
from schemas.pool import LeaseMember, LeaseRef, Placement
from schemas.sealed import Sealed
from schemas.training import Work

TargetState: TypeAlias = Literal["run", "drain", "kill"]


class LeaseOrder(Part, omit_defaults=True):
    """The work of a lease, and who takes part in it."""

    lease: LeaseRef
    members: tuple[LeaseMember, ...]  # all parts of the lease
    placement: Placement
    work: Work
    # correlation, traceparent: values of the request that the work follows from
    correlation: str | None = None
    traceparent: str | None = None


class AssignedLease(Part, tag_field="type", tag="lease", omit_defaults=True):
    """A lease with a member on a node. What is left out here was said before, or follows."""

    pool: str
    node_id: str
    offset: int
    incarnation: str  # agent that runs the member; another one must not
    lease: int  # number of the lease in the pool
    target: TargetState
    order: LeaseOrder | None = None  # where the node has no keys
    # order as JSON, compressed, sealed to the node's own key, and in Base64
    sealed_order: str | None = None
    sealed_keys: str = ""  # keys of the lease, sealed to its agent
    rendezvous: Sealed | None = None  # how agents of the other members reach that of the first


class AssignedNode(Part, tag_field="type", tag="node", omit_defaults=True):
    """A node, and the leases that hold slots of it."""

    pool: str
    node_id: str
    offset: int
    incarnation: str  # of its agent; empty: the pool does not know the node
    former: tuple[str, ...] = ()  # incarnations before that, newest first
    leaving: bool = False  # its agent gets nothing new
    withdrawn: int = 0  # number of the last withdrawn key of its agent
    leases: tuple[int, ...] = ()  # numbers of leases that hold its slots


class AssignedAll(Part, tag_field="type", tag="all"):
    """All nodes of a pool were written anew: those without a record at this offset are unknown."""

    pool: str
    offset: int


Assigned: TypeAlias = AssignedLease | AssignedNode | AssignedAll
