"""Fold of the `pool` journal: total, whatever the order of events."""

from typing import TypeAlias, TypeVar, assert_never

from immutables import Map
from msgspec.structs import replace

from schemas.envelope import Context, Rejected, Repeated
from schemas.pool import (
    CheckpointAccepted,
    Event,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseStarted,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    PlacementClosed,
    PlacementQueued,
    SlotsFreed,
    UsageCredited,
    UsageSliced,
    WaitExplained,
)
from services.scheduler.domain.pool.state import (
    INCARNATIONS_REMEMBERED_MAX,
    Drain,
    Lease,
    Node,
    Pool,
    Pools,
    Standing,
    Waiting,
    lease_key,
    lease_of,
)

V = TypeVar("V")
OfLease: TypeAlias = (
    LeaseStarted | CheckpointAccepted | LeaseDraining | LeaseKilled | UsageSliced | UsageCredited
)


def evolve(state: Pools, event: Event, ctx: Context) -> Pools:
    pool = state.get(ctx.key, Pool())
    evolved = evolve_pool(pool, event, ctx)
    return state if evolved is pool else state.set(ctx.key, evolved)


def evolve_pool(pool: Pool, event: Event, ctx: Context) -> Pool:
    match event:
        case Rejected() | Repeated():
            return pool
        case NodeRegistered():
            return _registered(pool, event, ctx)
        case NodeRetired():
            return _standing(pool, event.node_id, "retired")
        case NodesObserved():
            return _observed(pool, event, ctx)
        case NodeLost():
            return _standing(pool, event.node_id, "lost")
        case PlacementQueued():
            waiting = Waiting(placement=event, arrival=pool.arrivals + 1)
            return replace(
                pool,
                waiting=pool.waiting.set(event.job_id, waiting),
                attempts=pool.attempts.set(event.job_id, event.attempt),
                arrivals=pool.arrivals + 1,
            )
        case WaitExplained():
            return _explained(pool, event)
        case LeaseGranted():
            return _granted(pool, event, ctx)
        case PlacementClosed():
            return _closed(pool, event)
        case SlotsFreed():
            return replace(pool, leases=_without(pool.leases, lease_key(event.token.lease)))
        case _:
            lease = pool.leases.get(lease_key(event.token.lease))
            return pool if lease is None else _put(pool, _evolved(lease, event, ctx))


# --- nodes ----------------------------------------------------------------------------------------


def _registered(pool: Pool, event: NodeRegistered, ctx: Context) -> Pool:
    before = pool.nodes.get(event.node_id)
    former = () if before is None else (before.incarnation, *before.former)
    node = Node(
        node_id=event.node_id,
        incarnation=event.incarnation,
        slots=event.slots,
        device=event.device,
        memory_bytes=event.memory_bytes,
        last_seen=ctx.at,
        former=former[:INCARNATIONS_REMEMBERED_MAX],
    )
    return replace(pool, nodes=pool.nodes.set(event.node_id, node))


def _standing(pool: Pool, node_id: str, standing: Standing) -> Pool:
    node = pool.nodes.get(node_id)
    if node is None:
        return pool
    return replace(pool, nodes=pool.nodes.set(node_id, replace(node, standing=standing)))


def _observed(pool: Pool, event: NodesObserved, ctx: Context) -> Pool:
    """Proof of life; a node that was lost and is heard again may get leases again."""
    nodes, leases = pool.nodes, pool.leases
    alive: dict[tuple[str, str], int] = {}
    for seen in event.seen:
        node = nodes.get(seen.node_id)
        if node is None or node.incarnation != seen.incarnation:
            continue
        last_seen = max(node.last_seen, min(seen.last_seen, ctx.at))
        alive[node.node_id, node.incarnation] = last_seen
        back = node.standing == "lost" and not seen.silent
        standing: Standing = "up" if back else node.standing
        nodes = nodes.set(node.node_id, replace(node, last_seen=last_seen, standing=standing))
    for lease in pool.leases.values():
        last_seen = alive.get((lease.node_id, lease.incarnation), 0)
        if lease.started_at is not None and last_seen > lease.alive_at:
            leases = leases.set(lease_key(lease.number), replace(lease, alive_at=last_seen))
    return replace(pool, nodes=nodes, leases=leases)


# --- placements -----------------------------------------------------------------------------------


def _explained(pool: Pool, event: WaitExplained) -> Pool:
    waiting = pool.waiting.get(event.job_id)
    if waiting is None or waiting.placement.attempt != event.attempt:
        return pool
    told = replace(waiting, reason=event.reason, position=event.position)
    return replace(pool, waiting=pool.waiting.set(event.job_id, told))


def _granted(pool: Pool, event: LeaseGranted, ctx: Context) -> Pool:
    lease = Lease(
        number=event.token.lease,
        tenant=event.tenant,
        job_id=event.job_id,
        attempt=event.attempt,
        role=event.role,
        lane=event.lane,
        node_id=event.node_id,
        incarnation=event.incarnation,
        slots=event.slots,
        max_gpu_ms=event.max_gpu_ms,
        price_version=event.price_version,
        granted_at=ctx.at,
        named=event.checkpoints,
    )
    return replace(
        pool,
        waiting=_without(pool.waiting, event.job_id),
        leases=pool.leases.set(lease_key(lease.number), lease),
        next_lease=max(pool.next_lease, lease.number + 1),
    )


def _closed(pool: Pool, event: PlacementClosed) -> Pool:
    waiting = pool.waiting.get(event.job_id)
    if waiting is not None and waiting.placement.attempt == event.attempt:
        return replace(pool, waiting=_without(pool.waiting, event.job_id))
    lease = lease_of(pool, event.job_id, event.attempt)
    return pool if lease is None else _put(pool, replace(lease, closed=True, named=()))


def _without(entries: Map[str, V], key: str) -> Map[str, V]:
    return entries.delete(key) if key in entries else entries


# --- leases ---------------------------------------------------------------------------------------


def _put(pool: Pool, lease: Lease) -> Pool:
    return replace(pool, leases=pool.leases.set(lease_key(lease.number), lease))


def _evolved(lease: Lease, event: OfLease, ctx: Context) -> Lease:
    match event:
        case LeaseStarted():
            steps = max(0, event.total_steps - event.loaded_step)
            return replace(lease, started_at=ctx.at, alive_at=ctx.at, named=(), steps=steps)
        case CheckpointAccepted():
            return replace(
                lease,
                alive_at=ctx.at,
                captured_ms=event.checkpoint.captured_ms,
                last_manifest=event.checkpoint.manifest_sha256,
            )
        case LeaseDraining():
            drain = Drain(deadline=event.deadline, reason=event.reason)
            return replace(lease, drain=drain, asked=lease.asked or event.reason == "closed")
        case LeaseKilled():
            # Without a drain before it, only its job can have asked for this.
            return replace(lease, killed_at=ctx.at, asked=lease.asked or lease.drain is None)
        case UsageSliced():
            return replace(
                lease,
                used_gpu_ms=lease.used_gpu_ms + event.used_gpu_ms,
                billable_gpu_ms=lease.billable_gpu_ms + event.billable_gpu_ms,
            )
        case UsageCredited():
            return replace(lease, lost_gpu_ms=lease.lost_gpu_ms + event.lost_gpu_ms)
        case _:
            assert_never(event)
