"""When and where the first blocked request will fit, and what may start before it does."""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.units import Ms
from services.scheduler.domain.pool.planning.capacity import Capacity
from services.scheduler.domain.pool.planning.requests import Request, Running, Seats

OVERRUN_MS_MIN = 60_000  # what has passed its expected end is expected to go on so long at least
OVERRUN_SHARE = 10  # and for this part of the time that it has run already


def expected_end(running: Running, at: Ms) -> Ms:
    """When a lease should have freed its slots; always after now."""
    if running.ends_by is not None:
        return max(running.ends_by, at + 1)
    began = running.granted_at if running.started_at is None else running.started_at
    ends_at = began + running.p90_ms
    if ends_at > at:
        return ends_at
    return at + max(OVERRUN_MS_MIN, (at - began) // OVERRUN_SHARE)


@dataclass(slots=True)
class Reservation:
    """Seats that a request will have at a moment, whatever starts before.

    request: which one.
    at: when they are expected to be free.
    seats: where.
    spare: what may be held beyond that moment; never more than what is free now.
    """

    request: Request
    at: Ms
    seats: Seats
    spare: Capacity

    def take_short(self, free: Capacity, seats: Seats) -> None:
        """What ends before that moment has started here."""
        for node_id, _ in seats:
            self.spare.limit(node_id, free.free[node_id])

    def take_long(self, request: Request, seats: Seats) -> None:
        """What goes on beyond that moment has started here."""
        self.spare.take(seats, request.needs.memory_bytes)


def reserve(
    free: Capacity, running: Iterable[Running], request: Request, at: Ms
) -> Reservation | None:
    """The first moment at which a request fits, by the expected ends of leases.

    None: it does not fit even when all of them have ended.
    """
    needs, future = request.needs, free.copy()
    is_gang = needs.slots > future.largest(needs)
    ends = sorted(((expected_end(lease, at), lease) for lease in running), key=_end_and_key)
    for ends_at, lease in ends:
        future.give(lease.seats, lease.memory_bytes)
        changed = (node_id for node_id, _ in lease.seats if node_id in future.free)
        if not is_gang and not any(
            future.fits_on(node_id, needs, future.free[node_id]) for node_id in changed
        ):
            continue
        seats = future.find_seats(needs)
        if seats is not None:
            future.take(seats, needs.memory_bytes)
            spare = free.copy()
            for node_id, slots in future.free.items():
                spare.limit(node_id, slots)
            return Reservation(request, ends_at, seats, spare)
    return None


def _end_and_key(end: tuple[Ms, Running]) -> tuple[Ms, str]:
    return end[0], end[1].key
