"""Slots that a training has freed, kept for the evaluation of its job."""

from typing import Final

from msgspec.structs import replace

from schemas.node import Seat
from schemas.pool import Placement
from schemas.units import Ms
from services.scheduler.domain.pool.state import KeptSeat, Lease, Pool
from tunery.plan.scheduling.requests import LANES

#: how long slots are kept for an evaluation that is not asked for yet. Its job asks within a
#: second, unless it was paused at that moment, or the scheduler is away.
KEPT_MS: Final[Ms] = 30_000


def bound_seats(placement: Placement, seat: Seat) -> tuple[Seat, ...]:
    """Slots of its training that an evaluation continues in; none if it needs more of them."""
    if placement.role != "eval" or placement.slots > seat.slots:
        return ()
    return (Seat(node_id=seat.node_id, slots=placement.slots),)


def with_follower(pool: Pool, lease: Lease, node_id: str, at: Ms) -> Pool:
    """The first member of a training that has succeeded is free: for the evaluation of its job.

    Where that is asked for already it is bound to the slots; otherwise they are kept for it. A job
    of an earlier lane that waits goes first all the same.
    """
    ref, member = lease.ref, lease.members[0]
    if not lease.followed or node_id != member.node_id:
        return pool
    lane = LANES.index(ref.lane)
    if any(LANES.index(each.placement.lane) < lane for each in pool.waiting.values()):
        return pool
    seat = Seat(node_id=node_id, slots=member.slots)
    waiting = pool.waiting.get(ref.job_id)
    if waiting is not None:
        bound = replace(waiting, bound=bound_seats(waiting.placement, seat))
        return replace(pool, waiting=pool.waiting.set(ref.job_id, bound))
    if pool.attempts.get(ref.job_id) != ref.attempt:  # it is over, or has gone on elsewhere
        return pool
    kept = KeptSeat(
        tenant=ref.tenant,
        lane=ref.lane,
        seat=seat,
        memory_bytes=lease.forecast.memory_bytes,
        since=at,
        until=at + KEPT_MS,
    )
    return replace(pool, kept=pool.kept.set(ref.job_id, kept))
