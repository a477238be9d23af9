"""Facts about nodes: an agent starts, leaves in order, or is observed by a watcher."""

from collections.abc import Iterable
from typing import Final

from schemas import errors
from schemas.envelope import Context, Rejected
from schemas.pool import (
    Event,
    MemberFreed,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodeSeen,
    NodesObserved,
    ObserveNodes,
    RegisterNode,
    RetireNode,
)
from schemas.reasons import EndCode, refusing
from schemas.units import Ms
from services.scheduler.domain.pool import closing, deadlines
from services.scheduler.domain.pool.evolve import evolve_pool
from services.scheduler.domain.pool.state import (
    Lease,
    Node,
    Pool,
    is_run_by,
    lease_key,
    leases_on,
)
from services.scheduler.domain.pool.usage import whole_hours_ms

# A lease is missing only from heartbeats of so long after its start: older ones could not list it.
UNLISTED_MS_MIN: Final[Ms] = 30_000


def decide_registered(pool: Pool, command: RegisterNode, ctx: Context) -> tuple[Event, ...]:
    """A new incarnation has killed what was left over, so all older leases end and are free."""
    described = command.node
    node = pool.nodes.get(described.node_id)
    if node is not None and described.incarnation == node.description.incarnation:
        return ()
    if node is not None and described.incarnation in node.former:
        former = refusing("incarnation_former", node_id=described.node_id)
        return (Rejected(code=errors.STALE_TOKEN, reason=former),)
    if described.slots < 1:
        below = refusing("slots_below_one")
        return (Rejected(code=errors.MALFORMED, reason=below, param="slots"),)
    ended = _end_leases(pool, described.node_id, ctx, "node_replaced")
    return (*ended, NodeRegistered(node=described))


def decide_retired(pool: Pool, command: RetireNode, ctx: Context) -> tuple[Event, ...]:
    """The node leaves; what it did not report has ended all the same."""
    node = pool.nodes.get(command.node_id)
    if node is None or command.incarnation != node.description.incarnation:
        unknown = refusing("incarnation_unknown", node_id=command.node_id)
        return (Rejected(code=errors.STALE_TOKEN, reason=unknown),)
    if node.standing == "retired":
        return ()
    ended = _end_leases(pool, command.node_id, ctx, "node_left")
    return (*ended, NodeRetired(node_id=command.node_id))


def decide_observed(pool: Pool, command: ObserveNodes, ctx: Context) -> tuple[Event, ...]:
    """Proof of life writes the slices of the hours it has passed; silence ends leases."""
    known = [(node, seen) for seen in command.seen if (node := _node(pool, seen)) is not None]
    if not known:
        return ()
    observed = NodesObserved(seen=tuple(seen for _, seen in known))
    events: list[Event] = [observed]
    current = evolve_pool(pool, observed, ctx)
    for node, seen in known:
        judges = (_silence,) if seen.silent else (_passed_hours, _unlisted, _capped, _idle_leases)
        for judge in judges:
            facts = judge(current, node, seen, ctx)
            events += facts
            current = fold(current, facts, ctx)
    return tuple(events)


def fold(pool: Pool, events: Iterable[Event], ctx: Context) -> Pool:
    """The pool after these events."""
    for event in events:
        pool = evolve_pool(pool, event, ctx)
    return pool


def _end_leases(pool: Pool, node_id: str, ctx: Context, code: EndCode) -> tuple[Event, ...]:
    events: list[Event] = []
    for lease in leases_on(pool, node_id):
        if not lease.closed:
            events += closing.close(lease, closing.end_of_lost(lease, 0, ctx.at, code))
        events.append(MemberFreed(lease=lease.ref, node_id=node_id))
    return tuple(events)


def _node(pool: Pool, seen: NodeSeen) -> Node | None:
    node = pool.nodes.get(seen.node_id)
    if node is None or node.description.incarnation != seen.incarnation:
        return None
    return None if node.standing == "retired" else node


def _open_leases_on(pool: Pool, node_id: str) -> tuple[Lease, ...]:
    return tuple(lease for lease in leases_on(pool, node_id) if not lease.closed)


def _silence(pool: Pool, node: Node, seen: NodeSeen, ctx: Context) -> list[Event]:
    """Should the node still live somewhere out of reach, the kill is what it must do."""
    if node.standing != "up":
        return []
    last_seen = pool.nodes[seen.node_id].last_seen
    events: list[Event] = [
        NodeLost(node_id=seen.node_id, incarnation=seen.incarnation, last_seen=last_seen)
    ]
    for lease in _open_leases_on(pool, seen.node_id):
        end = closing.end_of_lost(lease, last_seen, ctx.at, "node_lost")
        if lease.killed_at is None:
            events.append(closing.kill(lease, end.ended_by, end.reason))
        events += closing.close(lease, end)
    return events


def _passed_hours(pool: Pool, node: Node, seen: NodeSeen, ctx: Context) -> list[Event]:
    """Slices of the UTC hours that each lease has lived through."""
    events: list[Event] = []
    for lease in _open_leases_on(pool, seen.node_id):
        if lease.started_at is not None:
            until_ms = whole_hours_ms(lease.started_at, lease.alive_at)
            events += closing.slice_usage(lease, until_ms)
    return events


def _unlisted(pool: Pool, node: Node, seen: NodeSeen, ctx: Context) -> list[Event]:
    """What its agent does not list is not alive. A heartbeat may be older than a new lease."""
    if seen.leases is None:
        return []
    listed = {lease.lease for lease in seen.leases}
    events: list[Event] = []
    for lease in _open_leases_on(pool, seen.node_id):
        if lease.started_at is None or lease.number in listed:
            continue
        if seen.last_seen - lease.started_at >= UNLISTED_MS_MIN:
            end = closing.end_of_unlisted(lease, ctx.at)
            if lease.killed_at is None:
                events.append(closing.kill(lease, end.ended_by, end.reason))
            events += closing.close(lease, end)
    return events


def _capped(pool: Pool, node: Node, seen: NodeSeen, ctx: Context) -> list[Event]:
    """Notices for leases that are near their caps."""
    leases = _open_leases_on(pool, seen.node_id)
    return [event for lease in leases for event in deadlines.enforce_cap(lease, ctx)]


def _idle_leases(pool: Pool, node: Node, seen: NodeSeen, ctx: Context) -> list[Event]:
    """What lives and makes no progress is killed, so that its job goes on elsewhere."""
    events: list[Event] = []
    for idle in seen.idle:
        lease = pool.leases.get(lease_key(idle.lease))
        if lease is None or lease.closed or not is_run_by(lease, seen.incarnation):
            continue
        if deadlines.is_stuck(lease, idle.idle_ms):
            end = closing.end_of_stuck(lease, ctx.at)
            events.append(closing.kill(lease, end.ended_by, end.reason))
            events += closing.close(lease, end)
    return events
