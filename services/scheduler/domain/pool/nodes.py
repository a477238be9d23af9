"""Facts about nodes: an agent starts, leaves in order, or is observed by a watcher."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from immutables import Map

from schemas import errors
from schemas.enrolment import NODE_ID, PART_ID
from schemas.envelope import Context, Reason, Rejected
from schemas.node import (
    CordonNode,
    DeviceFaultsChanged,
    DrainNode,
    ForgetNode,
    JoinNode,
    LeaveNode,
    NodeCordoned,
    NodeForgotten,
    NodeJoined,
    NodeKeysWithdrawn,
    NodeLeaving,
    NodeNoticed,
    NodeResized,
    NodeSeen,
    NodeUncordoned,
    NodeWarned,
    NoticeNode,
    ObservationsDeferred,
    ReportDeviceFaults,
    ResizeNode,
    UncordonNode,
    WarnNode,
    WithdrawNodeKeys,
)
from schemas.pool import (
    EndAuthor,
    Event,
    MemberFreed,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    ObserveNodes,
    RegisterNode,
    RetireNode,
)
from schemas.reasons import EndCode, cordoning, ending, refusing
from schemas.streams import PART, agent_of
from schemas.units import Ms
from services.scheduler.domain.pool import closing, deadlines
from services.scheduler.domain.pool.closing import FACTS_BYTES_MAX
from services.scheduler.domain.pool.enrolment import enrolled_number
from services.scheduler.domain.pool.evolve import evolve_pool
from services.scheduler.domain.pool.faults import broken_device
from services.scheduler.domain.pool.state import Lease, Node, Pool, is_run_by, lease_key, leases_on
from services.scheduler.domain.pool.usage import whole_hours_ms

# A lease is missing only from heartbeats of so long after its start: older ones could not list it.
UNLISTED_MS_MIN: Final[Ms] = 30_000
# What a node says it has, and an agent's settings allow; all its leases end in one record.
NODE_SLOTS_MAX: Final = 64
NODES_OF_AGENT_MAX: Final = 16
NOTICE_MARGIN_MS: Final[Ms] = 2_000  # from the kill to the end of a machine that is taken away
FORGOTTEN_MAX: Final = 500  # events of one record
SIGHT_BYTES: Final = 300  # of a node, a lease or an idle lease in an observation, at most


def decide_registered(pool: Pool, command: RegisterNode, ctx: Context) -> tuple[Event, ...]:
    """Register a new incarnation, which has killed all leftovers: end and free older leases."""
    described = command.node
    node = pool.nodes.get(described.node_id)
    if node is not None and described.incarnation == node.description.incarnation:
        return ()
    if node is not None and described.incarnation in node.former:
        former = refusing("incarnation_former", node_id=described.node_id)
        return (Rejected(code=errors.STALE_TOKEN, reason=former),)
    if node is None and (refused := _refuse_part(pool, described.node_id)) is not None:
        return (refused,)
    if described.slots < 1:
        below = refusing("slots_below_one")
        return (Rejected(code=errors.MALFORMED, reason=below, param="slots"),)
    if (above := _refuse_slots(described.slots)) is not None:
        return (above,)
    ended = _end_leases(pool, described.node_id, ctx, "node_replaced")
    registered = NodeRegistered(node=described, joining=command.joins)
    if node is None or node.cordon is None:
        return (*ended, registered)
    # Said again, so that readers of the log need not know what a restart leaves as it is.
    still = NodeCordoned(node_id=described.node_id, reason=node.cordon)
    return (*ended, registered, still)


def _refuse_part(pool: Pool, node_id: str) -> Rejected | None:
    """The refusal of a node that shares its agent with others; None: it may join.

    An agent chooses what is behind the name that it proves, so both text and number have limits.
    """
    agent, separator, part = node_id.partition(PART)
    if not separator:
        return None
    if not (re.fullmatch(NODE_ID, agent) and re.fullmatch(PART_ID, part)):
        return Rejected(
            code=errors.MALFORMED, reason=refusing("node_id_malformed"), param="node_id"
        )
    if len(_nodes_of(pool, agent)) < NODES_OF_AGENT_MAX:
        return None
    above = refusing("nodes_of_agent_at_most", limit=NODES_OF_AGENT_MAX)
    return Rejected(code=errors.QUOTA_EXCEEDED, reason=above)


def decide_joined(pool: Pool, command: JoinNode) -> tuple[Event, ...]:
    """Let a node get leases, once its agent has caught up with the journal."""
    node = pool.nodes.get(command.node_id)
    if node is None or command.incarnation != node.description.incarnation:
        return (_incarnation_unknown(command.node_id),)
    return (NodeJoined(node_id=command.node_id),) if node.joining else ()


def decide_leaving(pool: Pool, command: LeaveNode) -> tuple[Event, ...]:
    """Grant a node nothing more, as its agent is about to leave."""
    node = pool.nodes.get(command.node_id)
    if node is None or command.incarnation != node.description.incarnation:
        return (_incarnation_unknown(command.node_id),)
    if node.leaving or node.standing == "retired":
        return ()
    return (NodeLeaving(node_id=command.node_id),)


def decide_noticed(pool: Pool, command: NoticeNode, ctx: Context) -> tuple[Event, ...]:
    """Drain a node whose machine is taken away: its work writes a checkpoint and moves."""
    node = pool.nodes.get(command.node_id)
    if node is None or command.incarnation != node.description.incarnation:
        return (_incarnation_unknown(command.node_id),)
    if node.ends_at is not None or node.standing == "retired":
        return ()
    left_ms = max(0, command.left_ms)
    noticed = NodeNoticed(node_id=command.node_id, ends_at=ctx.at + left_ms)
    until_ms = max(0, left_ms - NOTICE_MARGIN_MS)
    ended = _drain(pool, command.node_id, ctx, "node", ending("node_noticed"), until_ms)
    return (noticed, *ended)


def decide_warned(pool: Pool, command: WarnNode) -> tuple[Event, ...]:
    """Record a warning for a node. Its work continues; a notice to end may follow, or not."""
    node = pool.nodes.get(command.node_id)
    if node is None or command.incarnation != node.description.incarnation:
        return (_incarnation_unknown(command.node_id),)
    if node.warned or node.ends_at is not None or node.standing == "retired":
        return ()
    return (NodeWarned(node_id=command.node_id),)


def decide_faults(pool: Pool, command: ReportDeviceFaults, ctx: Context) -> tuple[Event, ...]:
    """Exclude faulty devices from new leases, and kill leases on broken ones.

    A checkpoint from memory with errors would be worthless. The jobs continue elsewhere.
    """
    node = pool.nodes.get(command.node_id)
    if node is None or command.incarnation != node.description.incarnation:
        return (_incarnation_unknown(command.node_id),)
    if command.faults == node.faults or node.standing == "retired":
        return ()
    events: list[Event] = [DeviceFaultsChanged(node_id=command.node_id, faults=command.faults)]
    for lease in leases_on(pool, command.node_id):
        broken = broken_device(lease, command.node_id, command.faults)
        if broken is not None and not lease.closed and lease.killed_at is None:
            end = closing.end_of_broken(lease, command.node_id, broken, ctx.at)
            events.append(closing.kill(lease, end.ended_by, end.reason))
            events += closing.close(lease, end)
    return tuple(events)


def decide_resized(pool: Pool, command: ResizeNode) -> tuple[Event, ...]:
    """Change the slots of a node for later grants. Running work continues: its cluster evicts."""
    node = pool.nodes.get(command.node_id)
    if node is None or command.incarnation != node.description.incarnation:
        return (_incarnation_unknown(command.node_id),)
    if not node.description.elastic:
        fixed = refusing("node_not_elastic", node_id=command.node_id)
        return (Rejected(code=errors.ILLEGAL_STATE, reason=fixed),)
    if (above := _refuse_slots(command.slots)) is not None:
        return (above,)
    slots = max(0, command.slots)
    if slots == node.description.slots or node.standing == "retired":
        return ()
    return (NodeResized(node_id=command.node_id, slots=slots),)


def _refuse_slots(slots: int) -> Rejected | None:
    if slots <= NODE_SLOTS_MAX:
        return None
    above = refusing("slots_at_most", limit=NODE_SLOTS_MAX)
    return Rejected(code=errors.MALFORMED, reason=above, param="slots")


def decide_retired(pool: Pool, command: RetireNode, ctx: Context) -> tuple[Event, ...]:
    """Remove a node that leaves. Its unreported leases end as well."""
    node = pool.nodes.get(command.node_id)
    if node is None or command.incarnation != node.description.incarnation:
        return (_incarnation_unknown(command.node_id),)
    if node.standing == "retired":
        return ()
    ended = _end_leases(pool, command.node_id, ctx, "node_left")
    return (*ended, NodeRetired(node_id=command.node_id))


def decide_order(
    pool: Pool, command: CordonNode | UncordonNode | DrainNode | ForgetNode, ctx: Context
) -> tuple[Event, ...]:
    """Carry out an operator's order for a node; a repeat changes nothing."""
    node_id, node = command.node_id, pool.nodes.get(command.node_id)
    if node is None:
        missing = refusing("node_missing", node_id=node_id)
        return (Rejected(code=errors.NOT_FOUND, reason=missing, param="node_id"),)
    match command:
        case CordonNode():
            return _cordon(node)
        case UncordonNode():
            return () if node.cordon is None else (NodeUncordoned(node_id=node_id),)
        case DrainNode():
            drained = ending("node_drained")
            return (*_cordon(node), *_drain(pool, node_id, ctx, "platform", drained))
        case ForgetNode():
            if node.standing == "up":
                in_service = refusing("node_in_service", node_id=node_id)
                return (Rejected(code=errors.ILLEGAL_STATE, reason=in_service),)
            return forget(pool, node_id, ctx)
        case _:
            assert_never(command)


def decide_withdrawn(
    pool: Pool, withdrawn: Map[str, int], command: WithdrawNodeKeys, ctx: Context
) -> tuple[Event, ...]:
    """The node gets nothing more, and what it ran continues elsewhere, until it has another key.

    So do all nodes of its agent, which have the same key.

    withdrawn: number of the last key that is, by node id.
    """
    agent, number = agent_of(command.node_id), command.number
    nodes = _nodes_of(pool, agent)
    if number is None:
        number = max([enrolled_number(pool, agent), *(node.key_number for node in nodes)])
    if number == 0:
        missing = refusing("node_missing", node_id=command.node_id)
        return (Rejected(code=errors.NOT_FOUND, reason=missing, param="node_id"),)
    if number <= withdrawn.get(agent, 0):
        return ()
    events: list[Event] = [NodeKeysWithdrawn(node_id=agent, number=number)]
    for node in nodes:
        node_id = node.description.node_id
        if node_id != agent:
            events.append(NodeKeysWithdrawn(node_id=node_id, number=number))
        if node.key_number <= number and node.standing != "retired":
            events += _end_leases(pool, node_id, ctx, "node_withdrawn")
            events.append(NodeRetired(node_id=node_id))
    return tuple(events)


def _nodes_of(pool: Pool, agent: str) -> tuple[Node, ...]:
    """Nodes of an agent, by id."""
    return tuple(
        pool.nodes[node_id] for node_id in sorted(pool.nodes) if agent_of(node_id) == agent
    )


def forget(pool: Pool, node_id: str, ctx: Context) -> tuple[Event, ...]:
    """Mark a node as gone, and end the rest of its leases."""
    return (*_end_leases(pool, node_id, ctx, "node_lost"), NodeForgotten(node_id=node_id))


def forget_old(pool: Pool, ctx: Context) -> tuple[Event, ...]:
    """Nodes that have been gone for long, such as pods, each of which had a name of its own."""
    events: list[Event] = []
    for node_id in sorted(pool.nodes):
        forget_at = deadlines.forgotten_at(pool.nodes[node_id])
        if forget_at is not None and forget_at <= ctx.at and len(events) < FORGOTTEN_MAX:
            events += forget(pool, node_id, ctx)
    return tuple(events)


def _cordon(node: Node) -> tuple[Event, ...]:
    ordered = cordoning("operator")
    if node.cordon == ordered:
        return ()
    return (NodeCordoned(node_id=node.description.node_id, reason=ordered),)


def _drain(
    pool: Pool,
    node_id: str,
    ctx: Context,
    ended_by: EndAuthor,
    reason: Reason,
    left_ms: Ms = deadlines.DRAIN_MS,
) -> tuple[Event, ...]:
    """Drain the leases of a node that run; those that have not started go back to the queue."""
    events = list[Event]()
    for lease in leases_on(pool, node_id):
        if lease.closed or lease.killed_at is not None or lease.draining:
            continue
        if lease.started_at is None:
            unstarted = closing.LeaseEnd(0, "not_started", ended_by, reason)
            events.append(closing.kill(lease, ended_by, reason))
            events += closing.close(lease, unstarted)
        else:
            deadline = min(deadlines.drain_deadline(lease, ctx.at), ctx.at + left_ms)
            events.append(closing.drain(lease, deadline, ended_by, reason))
    return tuple(events)


def decide_observed(pool: Pool, command: ObserveNodes, ctx: Context) -> tuple[Event, ...]:
    """Proof of life writes the slices of the hours it has passed; silence ends leases.

    What one record cannot hold is deferred.
    """
    known = tuple(seen for seen in command.seen if _is_known(pool, seen))
    if not known:
        return ()
    first = _first_of(pool, known)
    rest = known[len(first) :]
    deferred = (ObservationsDeferred(seen=rest),) if rest else ()
    return (*_observe(pool, first, ctx), *deferred)


def decide_deferred(pool: Pool, ctx: Context) -> tuple[Event, ...]:
    """The next of the observations that were deferred."""
    if not pool.deferred:
        return ()
    return _observe(pool, _first_of(pool, pool.deferred), ctx)


def _first_of(pool: Pool, seen: Sequence[NodeSeen]) -> tuple[NodeSeen, ...]:
    """Return as many observations as one record can hold with all that may follow; at least one."""
    bytes_left, count = FACTS_BYTES_MAX, 0
    for sight in seen:
        bytes_left -= SIGHT_BYTES * (1 + len(sight.leases or ()) + len(sight.idle))
        bytes_left -= sum(closing.facts_bytes(lease) for lease in _open_on(pool, sight.node_id))
        if count and bytes_left < 0:
            break
        count += 1
    return tuple(seen[:count])


def _observe(pool: Pool, seen: tuple[NodeSeen, ...], ctx: Context) -> tuple[Event, ...]:
    observed = NodesObserved(seen=seen)
    events: list[Event] = [observed]
    current = evolve_pool(pool, observed, ctx)
    for sight in seen:
        judges = (_silence,) if sight.silent else (_passed_hours, _unlisted, _capped, _idle_leases)
        numbers = [lease.number for lease in _open_on(pool, sight.node_id)]
        for judge in judges:
            facts = judge(current, sight, _open_of(current, numbers), ctx)
            events += facts
            current = fold(current, facts, ctx)
    return tuple(events)


def _open_on(pool: Pool, node_id: str) -> tuple[Lease, ...]:
    """Open leases with a member that holds slots of a node, oldest first."""
    return tuple(lease for lease in leases_on(pool, node_id) if not lease.closed)


def _open_of(pool: Pool, numbers: Iterable[int]) -> tuple[Lease, ...]:
    """Return the current state of those of these leases that are still open."""
    leases = (pool.leases.get(lease_key(number)) for number in numbers)
    return tuple(lease for lease in leases if lease is not None and not lease.closed)


def fold(pool: Pool, events: Iterable[Event], ctx: Context) -> Pool:
    """Apply events to the pool."""
    for event in events:
        pool = evolve_pool(pool, event, ctx)
    return pool


def _incarnation_unknown(node_id: str) -> Rejected:
    unknown = refusing("incarnation_unknown", node_id=node_id)
    return Rejected(code=errors.STALE_TOKEN, reason=unknown)


def _end_leases(pool: Pool, node_id: str, ctx: Context, code: EndCode) -> tuple[Event, ...]:
    events: list[Event] = []
    for lease in leases_on(pool, node_id):
        if not lease.closed:
            events += closing.close(lease, closing.end_of_lost(lease, 0, ctx.at, code))
        events.append(MemberFreed(lease=lease.ref, node_id=node_id))
    return tuple(events)


def _is_known(pool: Pool, seen: NodeSeen) -> bool:
    node = pool.nodes.get(seen.node_id)
    if node is None or node.description.incarnation != seen.incarnation:
        return False
    return node.standing != "retired"


def _silence(pool: Pool, seen: NodeSeen, leases: tuple[Lease, ...], ctx: Context) -> list[Event]:
    """Mark a silent node as lost, and kill its leases in case it still runs out of reach."""
    if pool.nodes[seen.node_id].standing != "up":
        return []
    last_seen = pool.nodes[seen.node_id].last_seen
    events: list[Event] = [
        NodeLost(node_id=seen.node_id, incarnation=seen.incarnation, last_seen=last_seen)
    ]
    for lease in leases:
        end = closing.end_of_lost(lease, last_seen, ctx.at, "node_lost")
        if lease.killed_at is None:
            events.append(closing.kill(lease, end.ended_by, end.reason))
        events += closing.close(lease, end)
    return events


def _passed_hours(
    pool: Pool, seen: NodeSeen, leases: tuple[Lease, ...], ctx: Context
) -> list[Event]:
    """Usage slices of the full UTC hours of each lease."""
    events: list[Event] = []
    for lease in leases:
        if lease.started_at is not None:
            until_ms = whole_hours_ms(lease.started_at, lease.alive_at)
            events += closing.slice_usage(lease, until_ms)
    return events


def _unlisted(pool: Pool, seen: NodeSeen, leases: tuple[Lease, ...], ctx: Context) -> list[Event]:
    """End leases that their agent does not list. A heartbeat may be older than a new lease."""
    if seen.leases is None:
        return []
    listed = {lease.lease for lease in seen.leases}
    events: list[Event] = []
    for lease in leases:
        if lease.started_at is None or lease.number in listed:
            continue
        if seen.last_seen - lease.started_at >= UNLISTED_MS_MIN:
            end = closing.end_of_unlisted(lease, ctx.at, seen.node_id)
            if lease.killed_at is None:
                events.append(closing.kill(lease, end.ended_by, end.reason))
            events += closing.close(lease, end)
    return events


def _capped(pool: Pool, seen: NodeSeen, leases: tuple[Lease, ...], ctx: Context) -> list[Event]:
    """Notices for leases that are near their caps."""
    return [event for lease in leases for event in deadlines.enforce_cap(lease, ctx)]


def _idle_leases(
    pool: Pool, seen: NodeSeen, leases: tuple[Lease, ...], ctx: Context
) -> list[Event]:
    """Kill leases that run without progress, so that their jobs continue on other nodes."""
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
