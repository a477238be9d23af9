"""What a node should be doing, as the `pool` journal says."""

from typing import Literal, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.pool import LeaseGranted

TargetState: TypeAlias = Literal["run", "drain", "kill"]


class Assignment(Struct, frozen=True, kw_only=True):
    """A lease on this node, and what the pool wants of its process now.

    `target` only hardens: from run to drain to kill.
    """

    grant: LeaseGranted
    target: TargetState = "run"


class NodeState(Struct, frozen=True, kw_only=True):
    """One node as the journal describes it.

    registered: the pool has accepted this incarnation
    replaced: another incarnation registered after this one
    assignments: leases of this incarnation whose slots are not free yet, by lease number
    """

    node_id: str
    incarnation: str
    registered: bool = False
    replaced: bool = False
    assignments: Map[int, Assignment] = Map()
