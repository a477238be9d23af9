"""Leases whose end makes room for a request with the least loss, inside the published bound."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from schemas.units import Ms
from tunery.plan.scheduling.capacity import Capacity
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.requests import Request, RequestClass, Running, Seats


@dataclass(frozen=True, slots=True, order=True)
class Victim:
    """Lease that may be stopped."""

    loss: int  # slots × time that are lost
    key: str  # unique key of the lease
    lane: int  # lane of its job
    seats: Seats  # slots that it would free


@dataclass(frozen=True, slots=True)
class Eviction:
    """Leases that are stopped, and the seats that a request then has."""

    keys: tuple[str, ...]
    loss: int
    seats: Seats


NodeCost: TypeAlias = tuple[int, str, tuple[Victim, ...]]  # to free a whole node
Choice: TypeAlias = tuple[int, int, tuple[str, ...]]  # loss, how many, their keys


def find_eviction(draft: Draft, request: Request) -> Eviction | None:
    """The least loss that makes a request of an earlier lane fit; ties by keys."""
    needs, free = request.needs, draft.free
    largest = free.largest(needs)
    if largest == 0:
        return None
    if needs.slots > largest:
        return _evict_nodes(draft, request, largest)
    best: tuple[Choice, str] | None = None
    excluded = free.excluded(needs) | draft.claimed
    for kind in free.kinds(needs):
        for node_id in draft.freeable(request.lane, kind, needs.slots):
            missing = needs.slots - max(0, free.free[node_id])
            later = [each for each in draft.outlook(node_id).victims if each.lane > request.lane]
            if missing < 1 or node_id in excluded or not later:
                continue
            # Each slot costs at least as much as one of the lease whose work was saved last.
            if best is not None and missing * _lost_ms(draft, later[0]) > best[0][0]:
                continue
            victims = sorted(victim_of(draft, lease) for lease in later)
            choice = least_loss(victims, node_id, missing)
            if choice is None or not _frees_memory(draft, node_id, needs, later, choice):
                continue
            if best is None or (choice, node_id) < best:
                best = (choice, node_id)
    if best is None:
        return None
    (loss, _, keys), node_id = best
    return Eviction(keys, loss, ((node_id, needs.slots),))


def _lost_ms(draft: Draft, lease: Running) -> Ms:
    return draft.at - lease.saved_at + draft.policy.restart_ms


def victim_of(draft: Draft, lease: Running) -> Victim:
    return Victim(_lost_ms(draft, lease) * lease.slots, lease.key, lease.lane, lease.seats)


def _slots_on(victim: Victim, node_id: str) -> int:
    return next((slots for name, slots in victim.seats if name == node_id), 0)


def _frees_memory(
    draft: Draft, node_id: str, needs: RequestClass, leases: Iterable[Running], choice: Choice
) -> bool:
    """Return whether a request has memory as well as slots, once these leases have ended."""
    _, _, keys = choice
    stopped = (lease for lease in leases if lease.key in keys)
    freed_bytes = sum(lease.slots_on(node_id) * lease.memory_bytes for lease in stopped)
    return draft.free.has_memory(node_id, needs, freed_bytes)


def least_loss(victims: Iterable[Victim], node_id: str, missing: int) -> Choice | None:
    """The exact minimum over all subsets that free enough slots of one node."""
    least: list[Choice | None] = [None] * (missing + 1)
    least[0] = (0, 0, ())
    for victim in victims:
        slots = _slots_on(victim, node_id)
        for needed in range(missing, 0, -1):
            before = least[max(0, needed - slots)]
            if before is None:
                continue
            choice = (before[0] + victim.loss, before[1] + 1, (*before[2], victim.key))
            current = least[needed]
            if current is None or choice < current:
                least[needed] = choice
    return least[missing]


def _evict_nodes(draft: Draft, request: Request, size: int) -> Eviction | None:
    """Whole nodes for a gang: of one domain where one has enough, the least loss first."""
    needs, free = request.needs, draft.free
    count = -(-needs.slots // size)
    excluded = free.excluded(needs) | draft.claimed
    costs: list[NodeCost] = []
    for kind in free.kinds(needs):
        if free.largest_of(kind) != size:
            continue
        whole = dict.fromkeys((*free.whole(kind), *draft.freeable(request.lane, kind, size)))
        for node_id in whole:
            if node_id not in excluded and free.nodes[node_id].slots == size:
                stopped = _all_on(draft, node_id, request)
                if stopped is not None:
                    costs.append((sum(victim.loss for victim in stopped), node_id, stopped))
    by_domain: dict[str, list[NodeCost]] = {}
    for cost in sorted(costs):
        by_domain.setdefault(free.nodes[cost[1]].domain, []).append(cost)
    enough = [nodes[:count] for _, nodes in sorted(by_domain.items()) if len(nodes) >= count]
    chosen = min(enough, key=_total_loss, default=sorted(costs)[:count])
    if len(chosen) < count:
        return None
    sizes = [size] * (count - 1) + [needs.slots - size * (count - 1)]
    seats = tuple(zip(sorted(node_id for _, node_id, _ in chosen), sizes, strict=True))
    victims = needed(free, {victim for _, _, on_node in chosen for victim in on_node}, seats)
    loss = sum(victim.loss for victim in victims)
    return Eviction(tuple(sorted(victim.key for victim in victims)), loss, seats)


def needed(free: Capacity, victims: Iterable[Victim], seats: Seats) -> list[Victim]:
    """Return the victims that a gang cannot do without: the last node need not be whole."""
    kept = sorted(victims)
    for victim in reversed(tuple(kept)):
        others = [each for each in kept if each is not victim]
        if all(
            free.free[node_id] + sum(_slots_on(each, node_id) for each in others) >= slots
            for node_id, slots in seats
        ):
            kept = others
    return kept


def _total_loss(nodes: list[NodeCost]) -> int:
    return sum(loss for loss, _, _ in nodes)


def _all_on(draft: Draft, node_id: str, request: Request) -> tuple[Victim, ...] | None:
    """Return the leases to stop to free a whole node; None: one there may not be stopped."""
    free, slots = draft.free.free[node_id], draft.free.nodes[node_id].slots
    if free == slots:
        return ()
    leases = draft.outlook(node_id).victims
    later = sorted(victim_of(draft, lease) for lease in leases if lease.lane > request.lane)
    freed = sum(_slots_on(victim, node_id) for victim in later)
    return tuple(later) if free + freed == slots else None
