"""When and where the first blocked request will fit, and what may start before it does."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from schemas.units import Ms
from tunery.plan.scheduling.capacity import Capacity, pick
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.expectations import expected_end
from tunery.plan.scheduling.outlook import Release
from tunery.plan.scheduling.requests import Kind, Request, RequestClass, Seats

Moment: TypeAlias = tuple[Ms, Seats]


@dataclass(slots=True)
class Reservation:
    """Seats that a request will have at a moment, regardless of what starts before."""

    request: Request  # the request that has the reservation
    at: Ms  # expected time at which they are free
    seats: Seats  # reserved slots
    # capacity that may be held beyond that moment; never more than what is free now
    spare: Capacity
    kinds: frozenset[Kind]  # kinds of nodes that suit the request
    # the request is late: leases that are left there at that moment make way for it
    kept: bool = False

    def concerns(self, kinds: Iterable[Kind]) -> bool:
        """Return whether requests for these kinds of nodes may delay the reservation."""
        return not self.kinds.isdisjoint(kinds)

    def take_short(self, free: Capacity, seats: Seats) -> None:
        """Count a start here that ends before the reservation."""
        for node_id, _ in seats:
            self.spare.limit(node_id, free.free[node_id])

    def take_long(self, request: Request, seats: Seats) -> None:
        """Count a start here that lasts beyond the reservation."""
        self.spare.take(seats, request.needs.memory_bytes)


def reserve(draft: Draft, request: Request, reserved: Set[str] = frozenset()) -> Reservation | None:
    """The first moment at which a request fits, by the expected ends of leases.

    reserved: nodes that are reserved for others.
    None: it does not fit even when all of them have ended.
    """
    needs, excluded = request.needs, draft.free.excluded(request.needs) | reserved
    is_gang = needs.slots > draft.free.largest(needs)
    moment = (_whole_nodes if is_gang else _one_node)(draft, needs, excluded)
    if moment is None:
        return None
    at, seats = moment
    spare = draft.free.copy()
    for node_id, slots in seats:
        spare.limit(node_id, _free_at(draft, node_id, at) - slots)
    return Reservation(request, at, seats, spare, frozenset(draft.free.kinds(needs)))


def spare_beside(reservations: Sequence[Reservation]) -> Capacity:
    """Return the capacity that may be held beyond the moments of all reservations; at least one."""
    first, *others = reservations
    if not others:
        return first.spare
    spare = first.spare.copy()
    for reservation in others:
        for node_id, _ in reservation.seats:
            spare.limit(node_id, reservation.spare.free[node_id])
    return spare


def _free_at(draft: Draft, node_id: str, at: Ms) -> int:
    return bisect_right(draft.outlook(node_id).releases, at)


def _one_node(draft: Draft, needs: RequestClass, excluded: Set[str]) -> Moment | None:
    """The node that has the slots first; of several, as if they were free now."""
    best: tuple[Ms, Kind, int, str] | None = None
    for kind in draft.free.kinds(needs):
        for released_at, node_id in draft.releases(kind, needs.slots):
            if best is not None and released_at > best[0]:
                break
            if node_id in excluded:
                continue
            at = max(draft.at, released_at)
            memory_at = _memory_at(draft, node_id, needs) if needs.device == "cpu" else at
            if memory_at is None:
                continue
            at = max(at, memory_at)
            choice = (at, kind, _free_at(draft, node_id, at), node_id)
            best = choice if best is None else min(best, choice)
    return None if best is None else (best[0], ((best[3], needs.slots),))


def _memory_at(draft: Draft, node_id: str, needs: RequestClass) -> Ms | None:
    """When leases that share the memory of a machine leave enough of it; None: never."""
    left = draft.free.nodes[node_id].memory_bytes - needs.slots * needs.memory_bytes
    at = draft.at
    leases = draft.leases_on(node_id)
    used = sum(lease.slots_on(node_id) * lease.memory_bytes for lease in leases)
    for ends_at, bytes_freed in sorted(
        (expected_end(lease, draft.at), lease.slots_on(node_id) * lease.memory_bytes)
        for lease in leases
    ):
        if used <= left:
            break
        used -= bytes_freed
        at = ends_at
    return at if used <= left else None


def _whole_nodes(draft: Draft, needs: RequestClass, excluded: Set[str]) -> Moment | None:
    """Whole nodes of one kind, and a rest on one node more."""
    moments = (_whole_nodes_of(draft, needs, kind, excluded) for kind in draft.free.kinds(needs))
    return min((each for each in moments if each is not None), key=_when, default=None)


def _when(moment: Moment) -> Ms:
    return moment[0]


def _whole_nodes_of(
    draft: Draft, needs: RequestClass, kind: Kind, excluded: Set[str]
) -> Moment | None:
    size = draft.free.largest_of(kind)
    count, rest = divmod(needs.slots, size)

    def releases(slots: int) -> Iterator[Release]:
        return (each for each in draft.releases(kind, slots) if each[1] not in excluded)

    last = next(islice(releases(size), count - 1, None), None)
    # A node that is whole has room for the rest as well, so one more than the whole ones must.
    last_rest = next(islice(releases(rest), count, None), None) if rest else last
    if last is None or last_rest is None:
        return None
    at = max(draft.at, last[0], last_rest[0])
    whole = sorted(node_id for release, node_id in releases(size) if release <= at)
    chosen = sorted(pick(draft.free.domains(whole), count))
    seats = tuple((node_id, size) for node_id in chosen)
    if not rest:
        return at, seats
    home = {draft.free.nodes[node_id].domain for node_id in chosen}
    _, _, node_id = min(
        (draft.free.nodes[node_id].domain not in home, _free_at(draft, node_id, at), node_id)
        for release, node_id in releases(rest)
        if release <= at and node_id not in chosen
    )
    return at, (*seats, (node_id, rest))
