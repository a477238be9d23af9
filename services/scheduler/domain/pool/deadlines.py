"""What is due when: drain notices before the cap, kills at their deadlines, silence of agents."""

from typing import Final

from schemas.envelope import Context
from schemas.pool import Event, LeaseDraining
from schemas.units import Ms
from services.scheduler.domain.pool import closing
from services.scheduler.domain.pool.state import Lease, Pool, Pools, open_leases
from services.scheduler.domain.pool.usage import cap_ms, notice_ms

DRAIN_MS: Final = 120_000  # from the notice to the kill: a step, a checkpoint, its upload
START_MS_MAX: Final = 600_000  # from the grant to the start: a base model has to be read
UNREPORTED_MS_MAX: Final = 600_000  # from the kill to the agent's word that it is done


def due_at(lease: Lease) -> Ms:
    """When this open lease wants a tick."""
    if lease.killed_at is not None:
        return lease.killed_at + UNREPORTED_MS_MAX
    if lease.started_at is None:
        return lease.granted_at + START_MS_MAX
    if lease.drain is not None:
        return lease.drain.deadline
    return lease.started_at + notice_ms(lease.max_gpu_ms, lease.slots)


def is_stuck(lease: Lease, idle_ms: Ms) -> bool:
    """A step may take its share of the cap; with longer ones the job could not end under it.

    What has not started, or was told to end, has deadlines of its own.
    """
    if lease.started_at is None or lease.drain is not None or lease.killed_at is not None:
        return False
    share_ms = cap_ms(lease.max_gpu_ms, lease.slots) // lease.steps if lease.steps else 0
    return idle_ms > share_ms


def earliest(state: Pools) -> tuple[Ms, str] | None:
    """The next moment that wants a tick, and the pool that wants it."""
    due = (
        (due_at(lease), key)
        for key, pool in state.items()
        for lease in pool.leases.values()
        if not lease.closed
    )
    return min(due, default=None)


def tick(pool: Pool, ctx: Context) -> tuple[Event, ...]:
    events: list[Event] = []
    for lease in open_leases(pool):
        if due_at(lease) <= ctx.at:
            events += _due(lease, ctx)
    return tuple(events)


def drain_deadline(lease: Lease, started_at: Ms, at: Ms) -> Ms:
    """A drain never outlives the cap."""
    return min(at + DRAIN_MS, started_at + cap_ms(lease.max_gpu_ms, lease.slots))


def _due(lease: Lease, ctx: Context) -> tuple[Event, ...]:
    if lease.killed_at is not None:
        return closing.close(ctx.key, lease, closing.stopped(lease, ctx.at))
    if lease.started_at is None:
        end = closing.End(0, "failed", "platform")
        return (closing.killed(ctx.key, lease), *closing.close(ctx.key, lease, end))
    if lease.drain is not None:
        return (closing.killed(ctx.key, lease),)
    cap_at = lease.started_at + cap_ms(lease.max_gpu_ms, lease.slots)
    notice = LeaseDraining(
        token=closing.token(ctx.key, lease),
        tenant=lease.tenant,
        job_id=lease.job_id,
        attempt=lease.attempt,
        node_id=lease.node_id,
        deadline=cap_at,
        reason="budget",
    )
    return (notice, closing.killed(ctx.key, lease)) if cap_at <= ctx.at else (notice,)
