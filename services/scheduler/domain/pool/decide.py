"""Decider of `pool`: facts of nodes and attempts first, then who gets a place."""

from collections.abc import Iterable, Sequence
from typing import assert_never

from schemas import errors
from schemas.envelope import Context, Rejected, Tick
from schemas.pool import (
    ClosePlacement,
    Command,
    ConfirmFreed,
    Event,
    LeaseDraining,
    LeaseGranted,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodeSeen,
    NodesObserved,
    ObserveNodes,
    PlacementQueued,
    RegisterNode,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    RequestPlacement,
    RetireNode,
    SlotsFreed,
    Token,
    WaitExplained,
)
from services.scheduler.domain.pool import closing, deadlines, reports
from services.scheduler.domain.pool.evolve import evolve_pool
from services.scheduler.domain.pool.placement import grants, waits
from services.scheduler.domain.pool.state import (
    Lease,
    Node,
    Pool,
    Pools,
    lease_key,
    lease_of,
    leases_of,
)
from services.scheduler.domain.pool.usage import whole_hours_ms


def decide(state: Pools, command: Command, ctx: Context) -> tuple[Event, ...]:
    pool = state.get(ctx.key, Pool())
    facts = _facts(pool, command, ctx)
    if not facts or isinstance(facts[0], Rejected):
        return facts
    pool = folded(pool, facts, ctx)
    given = _granted(pool, ctx)
    told = _explained(folded(pool, given, ctx))
    return (*facts, *given, *told)


def folded(pool: Pool, events: Iterable[Event], ctx: Context) -> Pool:
    for event in events:
        pool = evolve_pool(pool, event, ctx)
    return pool


def _facts(pool: Pool, command: Command, ctx: Context) -> tuple[Event, ...]:
    match command:
        case RegisterNode():
            return _register(pool, command, ctx)
        case RetireNode():
            return _retire(pool, command, ctx)
        case ObserveNodes():
            return _observe(pool, command, ctx)
        case RequestPlacement():
            return _request(pool, command)
        case ClosePlacement():
            return _close(pool, command, ctx)
        case ReportStarted():
            return reports.report(pool, command, ctx, reports.started)
        case ReportCheckpoint():
            return reports.report(pool, command, ctx, reports.checkpointed)
        case ReportExit():
            return reports.report(pool, command, ctx, reports.exited)
        case ConfirmFreed():
            return reports.freed(pool, command, ctx)
        case Tick():
            return deadlines.tick(pool, ctx)
        case _:
            assert_never(command)


# --- nodes ----------------------------------------------------------------------------------------


def _register(pool: Pool, command: RegisterNode, ctx: Context) -> tuple[Event, ...]:
    """A new incarnation has killed what was left over, so all older leases end and are free."""
    node = pool.nodes.get(command.node_id)
    if node is not None and command.incarnation == node.incarnation:
        return ()
    if node is not None and command.incarnation in node.former:
        text = f"node {command.node_id} runs a newer incarnation already"
        return (Rejected(code=errors.STALE_TOKEN, message=text),)
    if command.slots < 1:
        return (Rejected(code=errors.MALFORMED, message="slots must be 1 or more", param="slots"),)
    registered = NodeRegistered(
        node_id=command.node_id,
        incarnation=command.incarnation,
        slots=command.slots,
        device=command.device,
        memory_bytes=command.memory_bytes,
    )
    return (*_emptied(pool, command.node_id, ctx), registered)


def _retire(pool: Pool, command: RetireNode, ctx: Context) -> tuple[Event, ...]:
    node = pool.nodes.get(command.node_id)
    if node is None or command.incarnation != node.incarnation:
        text = f"node {command.node_id} is not registered in this incarnation"
        return (Rejected(code=errors.STALE_TOKEN, message=text),)
    if node.standing == "retired":
        return ()
    return (*_emptied(pool, node.node_id, ctx), NodeRetired(node_id=node.node_id))


def _emptied(pool: Pool, node_id: str, ctx: Context) -> tuple[Event, ...]:
    """Every lease of a node ends at its last proof of life, and its slots are free."""
    events: list[Event] = []
    for lease in leases_of(pool, node_id):
        if not lease.closed:
            events += closing.close(ctx.key, lease, closing.vanished(lease, 0, ctx.at))
        events.append(SlotsFreed(token=closing.token(ctx.key, lease), node_id=node_id))
    return tuple(events)


def _observe(pool: Pool, command: ObserveNodes, ctx: Context) -> tuple[Event, ...]:
    """Proof of life writes the slices of the hours it has passed; silence ends leases."""
    known = [(node, seen) for seen in command.seen if (node := _node(pool, seen)) is not None]
    if not known:
        return ()
    observed = NodesObserved(seen=tuple(seen for _, seen in known))
    events: list[Event] = [observed]
    after = evolve_pool(pool, observed, ctx)
    for node, seen in known:
        running = [lease for lease in leases_of(after, node.node_id) if not lease.closed]
        if seen.silent and node.standing == "up":
            lost = NodeLost(
                node_id=node.node_id,
                incarnation=node.incarnation,
                last_seen=after.nodes[node.node_id].last_seen,
            )
            events.append(lost)
            events += _lost(running, lost, ctx)
        elif not seen.silent:
            events += _passed_hours(running, ctx)
            if seen.idle:
                events += _stuck(folded(after, events, ctx), seen, ctx)
    return tuple(events)


def _node(pool: Pool, seen: NodeSeen) -> Node | None:
    node = pool.nodes.get(seen.node_id)
    if node is None or node.incarnation != seen.incarnation or node.standing == "retired":
        return None
    return node


def _lost(leases: Sequence[Lease], lost: NodeLost, ctx: Context) -> list[Event]:
    """Should the node still live somewhere out of reach, the kill is what it must do."""
    events: list[Event] = []
    for lease in leases:
        if lease.killed_at is None:
            events.append(closing.killed(ctx.key, lease))
        events += closing.close(ctx.key, lease, closing.vanished(lease, lost.last_seen, ctx.at))
    return events


def _stuck(pool: Pool, seen: NodeSeen, ctx: Context) -> list[Event]:
    """What lives and makes no progress is killed, so that its job goes on elsewhere."""
    events: list[Event] = []
    for idle in seen.idle:
        lease = pool.leases.get(lease_key(idle.lease))
        if lease is None or lease.closed or lease.incarnation != seen.incarnation:
            continue
        if deadlines.is_stuck(lease, idle.idle_ms):
            events.append(closing.killed(ctx.key, lease))
            events += closing.close(ctx.key, lease, closing.stuck(lease, ctx.at))
    return events


def _passed_hours(leases: Sequence[Lease], ctx: Context) -> list[Event]:
    events: list[Event] = []
    for lease in leases:
        if lease.started_at is not None:
            until_ms = whole_hours_ms(lease.started_at, lease.alive_at)
            events += closing.sliced(ctx.key, lease, until_ms)
    return events


# --- placements -----------------------------------------------------------------------------------


def _request(pool: Pool, command: RequestPlacement) -> tuple[Event, ...]:
    if command.attempt <= pool.attempts.get(command.job_id, 0):
        return ()
    if command.slots < 1:
        return (Rejected(code=errors.MALFORMED, message="slots must be 1 or more", param="slots"),)
    queued = PlacementQueued(
        tenant=command.tenant,
        job_id=command.job_id,
        attempt=command.attempt,
        role=command.role,
        lane=command.lane,
        slots=command.slots,
        max_gpu_ms=command.max_gpu_ms,
        price_version=command.price_version,
        work=command.work,
        checkpoints=command.checkpoints,
        exclude_nodes=command.exclude_nodes,
    )
    return (queued,)


def _close(pool: Pool, command: ClosePlacement, ctx: Context) -> tuple[Event, ...]:
    """What waits leaves the queue; what has not started never will; the rest drains or is killed.

    Repeats only harden. Attempts that have ended are nobody's business any more.
    """
    waiting = pool.waiting.get(command.job_id)
    if waiting is not None and waiting.placement.attempt == command.attempt:
        return (closing.withdrawn(waiting.placement),)
    lease = lease_of(pool, command.job_id, command.attempt)
    if lease is None or lease.killed_at is not None:
        return ()
    if lease.started_at is None:
        end = closing.End(0, "not_started")
        return (closing.killed(ctx.key, lease), *closing.close(ctx.key, lease, end))
    if command.mode == "kill":
        return (closing.killed(ctx.key, lease),)
    if lease.drain is not None:
        return ()
    draining = LeaseDraining(
        token=closing.token(ctx.key, lease),
        tenant=lease.tenant,
        job_id=lease.job_id,
        attempt=lease.attempt,
        node_id=lease.node_id,
        deadline=deadlines.drain_deadline(lease, lease.started_at, ctx.at),
        reason="closed",
    )
    return (draining,)


def _granted(pool: Pool, ctx: Context) -> tuple[LeaseGranted, ...]:
    """A lease is a fencing token of its own: (pool, sequence)."""
    return tuple(
        LeaseGranted(
            token=Token(pool=ctx.key, lease=number),
            tenant=grant.placement.tenant,
            job_id=grant.placement.job_id,
            attempt=grant.placement.attempt,
            role=grant.placement.role,
            lane=grant.placement.lane,
            node_id=grant.node_id,
            incarnation=pool.nodes[grant.node_id].incarnation,
            slots=grant.placement.slots,
            max_gpu_ms=grant.placement.max_gpu_ms,
            price_version=grant.placement.price_version,
            work=grant.placement.work,
            checkpoints=grant.placement.checkpoints,
        )
        for number, grant in enumerate(grants(pool), start=pool.next_lease)
    )


def _explained(pool: Pool) -> tuple[WaitExplained, ...]:
    return tuple(
        WaitExplained(
            tenant=wait.placement.tenant,
            job_id=wait.placement.job_id,
            attempt=wait.placement.attempt,
            reason=wait.reason,
            position=wait.position,
        )
        for wait in waits(pool)
    )
