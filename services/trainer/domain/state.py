"""What a node should be doing, as the `pool` journal tells it."""

from typing import Literal, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.pool import LeaseGranted

Wish: TypeAlias = Literal["run", "drain", "kill"]


class Assignment(Struct, frozen=True, kw_only=True):
    """A lease on this node, and what the pool wants of it now. Wishes only harden."""

    grant: LeaseGranted
    wish: Wish = "run"


class NodeState(Struct, frozen=True, kw_only=True):
    """Leases of this incarnation whose slots are not free yet, by lease number."""

    node_id: str
    incarnation: str
    registered: bool = False
    replaced: bool = False
    assignments: Map[int, Assignment] = Map()
