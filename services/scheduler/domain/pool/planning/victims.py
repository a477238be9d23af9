"""Leases whose end makes room for a request with the least loss, inside the published bound."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from schemas.units import Ms
from services.scheduler.domain.pool.planning.capacity import Capacity
from services.scheduler.domain.pool.planning.policy import Policy
from services.scheduler.domain.pool.planning.requests import (
    PlanNode,
    Request,
    Running,
    Seats,
)
from services.scheduler.domain.pool.planning.reservation import expected_end

PPM = 1_000_000


@dataclass(frozen=True, slots=True, order=True)
class Victim:
    """A lease that may be stopped.

    loss: slots × time that are lost.
    key: names it among all that run.
    lane: of its job.
    seats: what it would free.
    """

    loss: int
    key: str
    lane: int
    seats: Seats


@dataclass(frozen=True, slots=True)
class Eviction:
    """Leases that are stopped, and the seats that a request then has."""

    keys: tuple[str, ...]
    loss: int
    seats: Seats


NodeCost: TypeAlias = tuple[int, str, tuple[Victim, ...]]  # to free a whole node
Choice: TypeAlias = tuple[int, int, tuple[str, ...]]  # loss, how many, their keys


def loss_ms(running: Running, at: Ms, policy: Policy) -> Ms | None:
    """What a stop now would cost a lease; None: more than it may, or it is protected."""
    if (
        running.ends_by is not None
        or running.started_at is None
        or at - running.started_at < policy.ran_ms_min
        or running.preemptions >= policy.preemptions_max
        or expected_end(running, at) - at <= policy.restart_ms
    ):
        return None
    lost_ms = at - running.saved_at + policy.restart_ms
    bound_ms = min(running.p50_ms * policy.loss_ppm // PPM, policy.loss_ms_max)
    return lost_ms if lost_ms <= bound_ms else None


def eligible(running: Iterable[Running], at: Ms, policy: Policy) -> dict[str, list[Victim]]:
    """Leases of later lanes that may be stopped now, by node, the smallest loss first."""
    by_node: dict[str, list[Victim]] = {}
    for lease in running:
        if lease.lane == 0:
            continue
        lost_ms = loss_ms(lease, at, policy)
        if lost_ms is None:
            continue
        victim = Victim(lost_ms * lease.slots, lease.key, lease.lane, lease.seats)
        for node_id, _ in lease.seats:
            by_node.setdefault(node_id, []).append(victim)
    for victims in by_node.values():
        victims.sort()
    return by_node


def find_eviction(
    free: Capacity, victims: Mapping[str, list[Victim]], request: Request
) -> Eviction | None:
    """The least loss that makes a request of an earlier lane fit; ties by keys."""
    needs, largest = request.needs, free.largest(request.needs)
    if largest == 0:
        return None
    if needs.slots > largest:
        return _evict_nodes(free, victims, request, largest)
    best: tuple[Choice, str] | None = None
    for node_id, on_node in victims.items():
        later = [victim for victim in on_node if victim.lane > request.lane]
        missing = needs.slots - max(0, free.free.get(node_id, -needs.slots))
        if missing < 1 or sum(_slots_on(victim, node_id) for victim in later) < missing:
            continue
        if best is not None and later[0].loss > best[0][0]:
            continue
        if not free.fits_on(node_id, needs, needs.slots):
            continue
        choice = _least_loss(later, node_id, missing)
        if choice is not None and (best is None or (choice, node_id) < best):
            best = (choice, node_id)
    if best is None:
        return None
    (loss, _, keys), node_id = best
    return Eviction(keys, loss, ((node_id, needs.slots),))


def _slots_on(victim: Victim, node_id: str) -> int:
    return next((slots for name, slots in victim.seats if name == node_id), 0)


def _least_loss(victims: Iterable[Victim], node_id: str, missing: int) -> Choice | None:
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


def _evict_nodes(
    free: Capacity, victims: Mapping[str, list[Victim]], request: Request, size: int
) -> Eviction | None:
    """Whole nodes for a gang: of one domain where one has enough, the least loss first."""
    needs = request.needs
    count = -(-needs.slots // size)
    costs: list[NodeCost] = []
    for node in free.nodes.values():
        if node.slots == size and free.fits_on(node.node_id, needs, needs.slots):
            stopped = _all_on(free, victims, node, request)
            if stopped is not None:
                costs.append((sum(victim.loss for victim in stopped), node.node_id, stopped))
    by_domain: dict[str, list[NodeCost]] = {}
    for cost in sorted(costs):
        by_domain.setdefault(free.nodes[cost[1]].domain, []).append(cost)
    enough = [nodes[:count] for _, nodes in sorted(by_domain.items()) if len(nodes) >= count]
    chosen = min(enough, key=_total_loss, default=sorted(costs)[:count])
    if len(chosen) < count:
        return None
    sizes = [size] * (count - 1) + [needs.slots - size * (count - 1)]
    seats = tuple(zip(sorted(node_id for _, node_id, _ in chosen), sizes, strict=True))
    stopped = _needed(free, {victim for _, _, on_node in chosen for victim in on_node}, seats)
    loss = sum(victim.loss for victim in stopped)
    return Eviction(tuple(sorted(victim.key for victim in stopped)), loss, seats)


def _needed(free: Capacity, victims: Iterable[Victim], seats: Seats) -> list[Victim]:
    """Those without whom a gang would not have its seats: the last node need not be whole."""
    stopped = sorted(victims)
    for victim in reversed(tuple(stopped)):
        others = [each for each in stopped if each is not victim]
        if all(
            free.free[node_id] + sum(_slots_on(each, node_id) for each in others) >= slots
            for node_id, slots in seats
        ):
            stopped = others
    return stopped


def _total_loss(nodes: list[NodeCost]) -> int:
    return sum(loss for loss, _, _ in nodes)


def _all_on(
    free: Capacity, victims: Mapping[str, list[Victim]], node: PlanNode, request: Request
) -> tuple[Victim, ...] | None:
    """What has to be stopped to free a whole node; None: something there may not be."""
    later = [victim for victim in victims.get(node.node_id, ()) if victim.lane > request.lane]
    freed = sum(_slots_on(victim, node.node_id) for victim in later)
    return tuple(later) if free.free[node.node_id] + freed == node.slots else None
