"""The planned pool, carried from one state of a pool to the next.

Building a planned pool takes a pass over all nodes, leases and placements, but an event changes two
or three of them. So one planned pool is kept: that of the pool that was planned last. Each pool
remembers in which parts it differs from the pool that it follows. When the planned pool of another
pool is asked for, these differences are applied to the one that is kept, and the differences back
are recorded (H. Baker, "Shallow binding makes functional arrays fast", 1991). Pools stay immutable
values. A pool without such a record, as after a snapshot, has its planned pool built anew.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, assert_never, get_args

from typing_extensions import TypeIs

from schemas.node import (
    BackOffEnded,
    DeviceFaultsChanged,
    DomainGivenUp,
    NodeCordoned,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeNoticed,
    NodeResized,
    NodeUncordoned,
    NodeWarned,
    SpotGivenUp,
    SpotReconsidered,
)
from schemas.pool import (
    CheckpointAccepted,
    Event,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseStarted,
    MemberFreed,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    PlacementClosed,
    PlacementQueued,
)
from schemas.works import WorkForgotten
from services.scheduler.domain.pool.planned_pool import (
    JobPart,
    LeasePart,
    NodePart,
    Part,
    PlannedPool,
    job_part,
    kept_part,
    lease_part,
    node_part,
)
from services.scheduler.domain.pool.state import KEPT, Pool, lease_key

OneNodeEvent: TypeAlias = (
    NodeJoined
    | NodeLeaving
    | NodeNoticed
    | NodeWarned
    | NodeResized
    | NodeRetired
    | NodeLost
    | NodeCordoned
    | NodeUncordoned
    | NodeForgotten
)
OneLeaseEvent: TypeAlias = LeaseStarted | CheckpointAccepted | LeaseKilled | MemberFreed
ONE_NODE_EVENTS: Final = frozenset(get_args(OneNodeEvent))
ONE_LEASE_EVENTS: Final = frozenset(get_args(OneLeaseEvent))
DISTANCE_MAX: Final = 1_000  # links; a planned pool that is farther away is built anew


class Version:
    """A link of the chain of pools that leads to the pool that was planned last.

    planned: the planned pool that is kept; None: this pool is not the one that was planned last.
    next_version: the next link of the chain; None: this is its end.
    changes: parts that differ between this pool and the next one.
    distance: number of links to the end, at least.
    """

    __slots__ = ("changes", "distance", "next_version", "planned")

    def __init__(self) -> None:
        self.planned: PlannedPool | None = None
        self.next_version: Version | None = None
        self.changes: Sequence[Part] = ()
        self.distance = 0


def planned_pool(pool: Pool) -> PlannedPool:
    """The planned pool of this pool. It is good until another pool is asked for."""
    version: Version | None = pool.__dict__.get("version")
    if version is None:
        version = pool.__dict__["version"] = Version()
        version.planned = PlannedPool(pool)
    return _move_to(version)


def carry(before: Pool, after: Pool, event: Event) -> Pool:
    """The pool after an event, which knows in what it differs from the one before."""
    version: Version | None = before.__dict__.get("version")
    if version is None or after is before or version.distance > DISTANCE_MAX:
        return after
    changes = [part for part in _touched(after, before, event) if part != _same_part(before, part)]
    if changes:
        later = Version()
        later.next_version, later.changes, later.distance = version, changes, version.distance + 1
        version = later
    after.__dict__["version"] = version
    return after


def _move_to(version: Version) -> PlannedPool:
    """Make this version the one whose pool was planned last."""
    way = []
    while version.next_version is not None:
        way.append(version)
        version = version.next_version
    planned = version.planned
    if planned is None:
        raise RuntimeError("no pool was planned on the way")
    for nearer in reversed(way):
        version.changes = [planned.put(part) for part in nearer.changes]
        version.planned, version.next_version, version.distance = None, nearer, len(way)
        nearer.planned, nearer.next_version, nearer.changes = planned, None, ()
        nearer.distance = 0
        version = nearer
    return planned


def _same_part(pool: Pool, part: Part) -> Part:
    match part:
        case NodePart():
            return node_part(pool, part.node_id)
        case LeasePart() if part.key.startswith(KEPT):
            return kept_part(pool, part.key.removeprefix(KEPT))
        case LeasePart():
            return lease_part(pool, part.key)
        case JobPart():
            return job_part(pool, part.job_id)
        case _:
            assert_never(part)


def _is_of_one_node(event: Event) -> TypeIs[OneNodeEvent]:
    return type(event) in ONE_NODE_EVENTS


def _is_of_one_lease(event: Event) -> TypeIs[OneLeaseEvent]:
    return type(event) in ONE_LEASE_EVENTS


def _node_and_leases(pool: Pool, node_id: str) -> Iterator[Part]:
    """A node that has other devices now, and what is held of them."""
    yield node_part(pool, node_id)
    for key in pool.leases_of_nodes.get(node_id, ()):
        yield lease_part(pool, key)


def _of_follower(pool: Pool, job_id: str) -> Iterator[Part]:
    """Yield the queued placement of a job and the slots kept for it."""
    yield job_part(pool, job_id)
    yield kept_part(pool, job_id)


def _touched(after: Pool, before: Pool, event: Event) -> Iterator[Part]:
    """Parts that an event may have changed."""
    if _is_of_one_node(event):
        yield node_part(after, event.node_id)
        return
    if _is_of_one_lease(event):
        yield lease_part(after, lease_key(event.lease.token.lease))
        if isinstance(event, MemberFreed):
            yield from _of_follower(after, event.lease.job_id)
        return
    match event:
        case NodesObserved():  # the most frequent first: each `case` before it costs time
            for seen in event.seen:
                yield node_part(after, seen.node_id)
            for job_id in before.kept:
                yield kept_part(after, job_id)
        case NodeRegistered():
            yield from _node_and_leases(after, event.node.node_id)
        case DeviceFaultsChanged():
            yield from _node_and_leases(after, event.node_id)
        case PlacementQueued():
            yield from _of_follower(after, event.placement.job_id)
        case WorkForgotten():
            yield from _of_follower(after, event.job_id)
        case BackOffEnded() | SpotGivenUp() | SpotReconsidered() | DomainGivenUp():
            yield job_part(after, event.job_id)
        case PlacementClosed():
            yield job_part(after, event.job_id)
            if event.job_id in before.open:
                yield lease_part(after, before.open[event.job_id])
        case LeaseGranted():
            yield job_part(after, event.lease.job_id)
            yield lease_part(after, lease_key(event.lease.token.lease))
        case LeaseDraining():
            yield lease_part(after, lease_key(event.lease.token.lease))
            if event.beneficiary is not None:
                yield job_part(after, event.beneficiary.job_id)
        case _:
            return
