"""What is due when: drain notices before the cap, kills at their deadlines, silence of agents."""

from itertools import chain
from typing import Final, assert_never

from schemas.envelope import Context
from schemas.pool import Event
from schemas.reasons import ending
from schemas.units import DAY_MS, Ms
from services.scheduler.domain.pool import closing
from services.scheduler.domain.pool.faults import end_back_offs, next_back_off_end
from services.scheduler.domain.pool.locality import give_up_domains, next_domain_end
from services.scheduler.domain.pool.price_classes import change_spot, next_spot_change
from services.scheduler.domain.pool.state import Lease, Node, Pool, Pools, open_leases
from services.scheduler.domain.pool.usage import cap_ms, notice_ms

DRAIN_MS: Final = 120_000  # from the notice to the kill: a step, a checkpoint, its upload
RETIRED_KEPT_MS: Final = DAY_MS
LOST_KEPT_MS: Final = 7 * DAY_MS  # a machine under repair keeps its slots, and its name
UNREPORTED_MS_MAX: Final = 600_000  # from the kill to the agent's report that it is done
# A start that still fetches or reads is given more time: this long after its last progress, but
# never more than this many times its limit. The watcher reports progress every two minutes.
PREPARING_MS_MAX: Final = 600_000
PREPARING_FACTOR: Final = 4


def due_at(lease: Lease) -> Ms | None:
    """When this open lease wants a tick; None while it may run.

    The cap is not a matter of time but of use: observations of its agent's clock enforce it.
    """
    if lease.killed_at is not None:
        return lease.killed_at + UNREPORTED_MS_MAX
    if lease.started_at is None:
        return _start_by(lease)
    if lease.ending is not None and lease.ending.deadline is not None:
        return lease.ending.deadline
    return None


def forgotten_at(node: Node) -> Ms | None:
    """When a node that is gone is forgotten; None: it is not gone."""
    match node.standing:
        case "up":
            return None
        case "retired":
            return node.last_seen + RETIRED_KEPT_MS
        case "lost":
            return node.last_seen + LOST_KEPT_MS
        case _:
            assert_never(node.standing)


def is_stuck(lease: Lease, idle_ms: Ms) -> bool:
    """Whether a lease makes no progress: it was idle for longer than a step may take.

    A step may take its share of the cap; with longer ones the job could not end under it. What has
    not started, or has an order to end, has deadlines of its own.
    """
    if lease.started_at is None or lease.ending is not None:
        return False
    share_ms = cap_ms(lease.max_gpu_ms, lease.slots) // lease.steps if lease.steps else 0
    return idle_ms > share_ms


def earliest(state: Pools) -> tuple[Ms, str] | None:
    """The next moment that wants a tick, and the pool that wants it."""
    due = (
        (lease_due_at, key)
        for key, pool in state.items()
        for lease in pool.leases.values()
        if not lease.closed and (lease_due_at := due_at(lease)) is not None
    )
    unfinished = (
        (0, key)
        for key, pool in state.items()
        if pool.refunds or pool.deferred or pool.planning_deferred
    )
    back_offs = (
        (end, key) for key, pool in state.items() if (end := next_back_off_end(pool)) is not None
    )
    spot_changes = (
        (end, key) for key, pool in state.items() if (end := next_spot_change(pool)) is not None
    )
    domain_ends = (
        (end, key) for key, pool in state.items() if (end := next_domain_end(pool)) is not None
    )
    gone = (
        (forget_at, key)
        for key, pool in state.items()
        for node in pool.nodes.values()
        if (forget_at := forgotten_at(node)) is not None
    )
    moments = chain(due, unfinished, back_offs, spot_changes, domain_ends, gone)
    return min(moments, default=None)


def tick(pool: Pool, ctx: Context) -> tuple[Event, ...]:
    """What has become due by now, lease by lease, oldest first; the next tick goes on."""
    events: list[Event] = []
    bytes_left = closing.FACTS_BYTES_MAX
    for lease in open_leases(pool):
        lease_due_at = due_at(lease)
        if lease_due_at is not None and lease_due_at <= ctx.at and bytes_left > 0:
            events += _due(lease, ctx)
            bytes_left -= closing.facts_bytes(lease)
    for job_id, cause in sorted(pool.refunds.items()):
        credits_given = closing.settle(pool, job_id, cause)
        bytes_left -= closing.LINE_BYTES * len(credits_given)
        if events and bytes_left < 0:
            break
        events += credits_given
    for ended in end_back_offs(pool, ctx.at):
        bytes_left -= closing.LINE_BYTES * len(ended.node_ids)
        if events and bytes_left < 0:
            break
        events.append(ended)
    for changed in (*change_spot(pool, ctx.at), *give_up_domains(pool, ctx.at)):
        bytes_left -= closing.LINE_BYTES
        if events and bytes_left < 0:
            break
        events.append(changed)
    return tuple(events)


def drain_deadline(lease: Lease, at: Ms) -> Ms:
    """When a drain that begins now becomes a kill. It never outlives what is left of the cap."""
    return at + min(DRAIN_MS, _left_ms(lease))


def enforce_cap(lease: Lease, ctx: Context) -> tuple[Event, ...]:
    """The notice before the cap, once the lease is proven to have run so long."""
    if lease.started_at is None or lease.ending is not None:
        return ()
    if lease.proven_ms < notice_ms(lease.max_gpu_ms, lease.slots):
        return ()
    capped, left_ms = ending("cap_reached"), _left_ms(lease)
    notice = closing.drain(lease, ctx.at + left_ms, "budget", capped)
    return (notice,) if left_ms > 0 else (notice, closing.kill(lease, "budget", capped))


def _due(lease: Lease, ctx: Context) -> tuple[Event, ...]:
    if lease.killed_at is not None:
        return closing.close(lease, closing.end_of_killed(lease, ctx.at))
    if lease.started_at is None:
        end = closing.end_of_unstarted()
        return (closing.kill(lease, end.ended_by, end.reason), *closing.close(lease, end))
    return (closing.kill(lease, "budget", ending("cap_reached")),)


def _start_by(lease: Lease) -> Ms:
    """When a lease must have started: progress of its preparation extends the limit."""
    limit = lease.granted_at + lease.start_ms_max
    if lease.prepared_at is None:
        return limit
    latest = lease.granted_at + PREPARING_FACTOR * lease.start_ms_max
    return min(latest, max(limit, lease.prepared_at + PREPARING_MS_MAX))


def _left_ms(lease: Lease) -> Ms:
    """What is left of the cap, by what is proven."""
    return max(0, cap_ms(lease.max_gpu_ms, lease.slots) - lease.proven_ms)
