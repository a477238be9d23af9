"""Deadlines of a pool: drain notices before the cap, kills, silence of agents."""

from collections.abc import Iterator
from typing import Final, assert_never

from schemas.envelope import Context
from schemas.node import BackOffEnded, DomainGivenUp, SpotGivenUp, SpotReconsidered
from schemas.pool import (
    Event,
    LeaseAdmitted,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseStarted,
    LeaseWaits,
    NodeLost,
    NodeRetired,
    PlacementClosed,
    PlacementQueued,
)
from schemas.reasons import ending
from schemas.units import DAY_MS, Ms
from services.scheduler.domain.pool import closing
from services.scheduler.domain.pool.faults import end_back_offs, next_back_off_end
from services.scheduler.domain.pool.locality import give_up_domains
from services.scheduler.domain.pool.price_classes import change_spot, next_spot_change
from services.scheduler.domain.pool.state import Lease, Node, Pool, Pools, lease_key
from services.scheduler.domain.pool.usage import cap_ms, notice_ms
from tunery.runtime.verbs import Deadlines, TimedPart

DRAIN_MS: Final = 120_000  # from the notice to the kill: a step, a checkpoint, its upload
RETIRED_KEPT_MS: Final = DAY_MS
LOST_KEPT_MS: Final = 7 * DAY_MS  # a machine under repair keeps its slots, and its name
UNREPORTED_MS_MAX: Final = 600_000  # from the kill to the agent's report that it is done
# A start that still fetches or reads is given more time: this long after its last progress, but
# never more than this many times its limit. The watcher reports progress every two minutes.
PREPARING_MS_MAX: Final = 600_000
PREPARING_FACTOR: Final = 4
LEASE, NODE, JOB = "lease", "node", "job"  # kinds of parts with their own deadline


def due_at(lease: Lease) -> Ms | None:
    """Next deadline of an open lease; None: it may run.

    The cap is not a matter of time but of use: observations of its agent's clock enforce it.
    """
    if lease.killed_at is not None:
        return lease.killed_at + UNREPORTED_MS_MAX
    if lease.wait is not None and lease.waits_since is not None:
        return lease.waits_since + lease.wait_ms_max
    if lease.started_at is None:
        return _start_by(lease)
    if lease.ending is not None and lease.ending.deadline is not None:
        return lease.ending.deadline
    return None


def forgotten_at(node: Node) -> Ms | None:
    """Time at which a gone node is forgotten; None: the node is not gone."""
    match node.standing:
        case "up":
            return None
        case "retired":
            return node.gone_at + RETIRED_KEPT_MS
        case "lost":
            return node.gone_at + LOST_KEPT_MS
        case _:
            assert_never(node.standing)


def is_stuck(lease: Lease, idle_ms: Ms) -> bool:
    """Return whether a lease makes no progress: it was idle for longer than a step may take.

    A step may take its share of the cap; with longer ones the job could not end under it. Leases
    that have not started, or have an order to end, have other deadlines.
    """
    if lease.started_at is None or lease.ending is not None:
        return False
    share_ms = cap_ms(lease.max_gpu_ms, lease.slots) // lease.steps if lease.steps else 0
    return idle_ms > share_ms


def deadline_of(state: Pools, part: TimedPart) -> Ms | None:
    """Next deadline of a pool, or of one of its leases, nodes or jobs."""
    pool = state.get(part.key)
    if pool is None:
        return None
    if not part.name:
        is_unfinished = bool(pool.refunds or pool.deferred or pool.planning_deferred)
        return 0 if is_unfinished else None
    kind, _, name = part.name.partition("/")
    if kind == LEASE:
        lease = pool.leases.get(name)
        return None if lease is None or lease.closed else due_at(lease)
    if kind == NODE:
        node = pool.nodes.get(name)
        return None if node is None else forgotten_at(node)
    ends = (
        next_back_off_end(pool, name),
        next_spot_change(pool, name),
        pool.domain_until.get(name),
    )
    return min((end for end in ends if end is not None), default=None)


def timed_parts(state: Pools) -> Iterator[TimedPart]:
    """All parts of a pool that may have a deadline."""
    for key, pool in state.items():
        yield TimedPart(key)
        for kind, names in (
            (LEASE, pool.leases),
            (NODE, pool.nodes),
            (
                JOB,
                {
                    *pool.failures,
                    *pool.excluded_until,
                    *pool.spot_until,
                    *pool.spot_from,
                    *pool.domain_until,
                },
            ),
        ):
            for name in names:
                yield _part(key, kind, name)


def changed_parts(_: Pools, key: str, event: Event) -> Iterator[TimedPart]:
    """Parts to which an event may give an earlier deadline. Observations only postpone them."""
    yield TimedPart(key)
    match event:
        case (
            LeaseGranted()
            | LeaseWaits()
            | LeaseAdmitted()
            | LeaseStarted()
            | LeaseDraining()
            | LeaseKilled()
        ):
            yield _part(key, LEASE, lease_key(event.lease.token.lease))
        case NodeLost() | NodeRetired():
            yield _part(key, NODE, event.node_id)
        case PlacementQueued():
            yield _part(key, JOB, event.placement.job_id)
        case (
            PlacementClosed()
            | SpotReconsidered()
            | SpotGivenUp()
            | DomainGivenUp()
            | BackOffEnded()
        ):
            yield _part(key, JOB, event.job_id)
        case _:
            return


def _part(key: str, kind: str, name: str) -> TimedPart:
    return TimedPart(key, f"{kind}/{name}")


DEADLINES: Final = Deadlines(deadline_of, timed_parts, changed_parts)


def tick(pool: Pool, ctx: Context) -> tuple[Event, ...]:
    """Decide what is due by now, lease by lease, oldest first; the next tick continues."""
    events: list[Event] = []
    bytes_left = closing.FACTS_BYTES_MAX
    due = (lease for lease in pool.leases.values() if _is_due(lease, ctx.at))
    for lease in sorted(due, key=lambda lease: lease.number):
        if bytes_left > 0:
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
    """Time at which a drain that begins now becomes a kill: within the rest of the cap."""
    return at + min(DRAIN_MS, _left_ms(lease))


def enforce_cap(lease: Lease, ctx: Context) -> tuple[Event, ...]:
    """Give notice of the cap, once the lease is proven to have run that long."""
    if lease.started_at is None or lease.ending is not None:
        return ()
    if lease.proven_ms < notice_ms(lease.max_gpu_ms, lease.slots):
        return ()
    capped, left_ms = ending("cap_reached"), _left_ms(lease)
    notice = closing.drain(lease, ctx.at + left_ms, "budget", capped)
    return (notice,) if left_ms > 0 else (notice, closing.kill(lease, "budget", capped))


def _is_due(lease: Lease, at: Ms) -> bool:
    lease_due_at = None if lease.closed else due_at(lease)
    return lease_due_at is not None and lease_due_at <= at


def _due(lease: Lease, ctx: Context) -> tuple[Event, ...]:
    if lease.killed_at is not None:
        return closing.close(lease, closing.end_of_killed(lease, ctx.at))
    if lease.started_at is None:
        waits = lease.wait is not None
        end = closing.end_of_unadmitted() if waits else closing.end_of_unstarted()
        return (closing.kill(lease, end.ended_by, end.reason), *closing.close(lease, end))
    return (closing.kill(lease, "budget", ending("cap_reached")),)


def _start_by(lease: Lease) -> Ms:
    """Time by which a lease must have started. Progress of its preparation extends it."""
    since = lease.granted_at if lease.admitted_at is None else lease.admitted_at
    limit = since + lease.start_ms_max
    if lease.prepared_at is None:
        return limit
    latest = since + PREPARING_FACTOR * lease.start_ms_max
    return min(latest, max(limit, lease.prepared_at + PREPARING_MS_MAX))


def _left_ms(lease: Lease) -> Ms:
    """Return the rest of the cap, by the proven elapsed time."""
    return max(0, cap_ms(lease.max_gpu_ms, lease.slots) - lease.proven_ms)
