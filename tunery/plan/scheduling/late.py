"""Free whole nodes for a request that has waited too long: its nodes' leases end one by one.

A node that drains by itself stands partly idle for as long as its longest lease. Leases can be
stopped at a checkpoint and go on elsewhere, so a node need not drain: it is used as before until
only leases are left that make way, and these are stopped, each after its own next checkpoint.
"""

from collections.abc import Iterator, Set
from heapq import nsmallest
from itertools import islice
from typing import Final, TypeAlias

from schemas.units import PPM, Ms
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.expectations import bound_ms, expected_end
from tunery.plan.scheduling.policy import Policy
from tunery.plan.scheduling.requests import Kind, Request, RequestClass, Running, Seats
from tunery.plan.scheduling.victims import Victim, least_loss, needed, victim_of

Moment: TypeAlias = tuple[Ms, Seats]
_Cost: TypeAlias = tuple[Ms, int, str]  # of a node: when it can be freed, slots to free, its name

# Nodes are looked at in two orders, so many of each: a plan costs the same in a large cluster.
CANDIDATES_MAX: Final = 48


def makes_way(running: Running, request: Request, at: Ms, policy: Policy) -> bool:
    """Return whether a lease will be stopped for a late request, once its work is saved.

    This stops leases of later lanes, and those of its own lane that were submitted later. The order
    of submissions does not change, so a job that was stopped for another never stops that job. A
    lease that has not saved its work for long may never do so; an urgent request counts only on
    leases that have saved some.
    """
    saves = running.started_at is not None and running.saved_at > running.started_at
    is_later = (running.lane, running.submitted_at) > (request.lane, request.submitted_at)
    return (
        is_later
        and running.ends_by is None
        and running.preemptions < policy.preemptions_max
        and bound_ms(running, policy) > policy.restart_ms
        and (running.started_at is None or at - running.saved_at <= policy.unsaved_ms_max)
        and (saves or not is_urgent(request, at, policy))
    )


def will_make_way(waiting: Request, request: Request, policy: Policy) -> bool:
    """Return whether the lease of a waiting request would make way for a late one."""
    estimate_ms = waiting.p50_ms if waiting.estimate_ms is None else waiting.estimate_ms
    return (
        (waiting.lane, waiting.submitted_at) > (request.lane, request.submitted_at)
        and waiting.preemptions < policy.preemptions_max
        and min(estimate_ms * policy.loss_ppm // PPM, policy.loss_ms_max) > policy.restart_ms
    )


def is_urgent(request: Request, at: Ms, policy: Policy) -> bool:
    """Return whether a request has waited for twice as long as it should."""
    return at > request.waits_since + 2 * policy.promised_ms[request.lane]


def first_nodes(draft: Draft, request: Request, reserved: Set[str]) -> Moment | None:
    """When only leases that make way are left on as many nodes as a request needs, and which.

    They are of one kind, and of several those with the fewest slots to free. None: there are not
    so many nodes that are not `reserved`.
    """
    needs, size = request.needs, draft.free.largest(request.needs)
    if not size:
        return None
    count = -(-needs.slots // size)
    excluded = draft.free.excluded(needs) | reserved | draft.claimed
    best: tuple[Ms, int, list[_Cost]] | None = None
    for kind in draft.free.kinds(needs):
        costs = (
            _cost(draft, request, node_id)
            for node_id in _candidates(draft, request.needs, kind, size, excluded)
        )
        chosen = nsmallest(count, costs)
        if len(chosen) == count:
            when, slots = max(at for at, _, _ in chosen), sum(slots for _, slots, _ in chosen)
            if best is None or (when, slots) < best[:2]:
                best = when, slots, chosen
    if best is None:
        return None
    sizes = [size] * (count - 1) + [needs.slots - size * (count - 1)]
    names = sorted(node_id for _, _, node_id in best[2])
    return best[0], tuple(zip(names, sizes, strict=True))


def _candidates(
    draft: Draft, needs: RequestClass, kind: Kind, size: int, excluded: Set[str]
) -> set[str]:
    """Nodes that may be freed soon: by leases that make way, or by themselves."""
    free = draft.free

    def usable(names: Iterator[str]) -> Iterator[str]:
        # A node with less than no free slots is being freed for another request.
        may = (
            node_id
            for node_id in names
            if node_id not in excluded
            and free.free[node_id] >= 0
            and free.nodes[node_id].slots == size
            and free.could_hold(free.nodes[node_id], needs)
        )
        return islice(may, CANDIDATES_MAX)

    by_themselves = (node_id for _, node_id in draft.releases(kind, size))
    return {*usable(draft.latest(kind)), *usable(by_themselves)}


def _cost(draft: Draft, request: Request, node_id: str) -> _Cost:
    """When the last lease of a node has ended that does not make way, and slots of the others."""
    at, slots = draft.at, 0
    for lease in draft.leases_on(node_id):
        if makes_way(lease, request, draft.at, draft.policy):
            slots += lease.slots_on(node_id)
        else:
            at = max(at, expected_end(lease, draft.at))
    return at, slots, node_id


def can_be_freed(draft: Draft, request: Request, seats: Seats) -> bool:
    """Return whether these nodes are unclaimed, and leases that stay leave enough room there."""
    for node_id, slots in seats:
        stays = sum(
            lease.slots_on(node_id)
            for lease in draft.leases_on(node_id)
            if lease.ends_by is None and not makes_way(lease, request, draft.at, draft.policy)
        )
        if node_id in draft.claimed or draft.free.nodes[node_id].slots - stays < slots:
            return False
    return True


def are_being_freed(draft: Draft, seats: Seats) -> bool:
    """Return whether all leases that have to go are ending."""
    return all(_left_to_free(draft, node_id, slots) <= 0 for node_id, slots in seats)


def stoppable(draft: Draft, request: Request, seats: Seats) -> list[Victim]:
    """Leases on these nodes that make way and lose little if they are stopped now.

    No more than have to go.
    """
    stopped: set[Victim] = set()
    for node_id, slots in seats:
        missing = _left_to_free(draft, node_id, slots)
        if missing > 0:
            leases = (
                victim_of(draft, lease)
                for lease in draft.outlook(node_id).victims
                if makes_way(lease, request, draft.at, draft.policy)
            )
            victims = sorted(leases)
            choice = least_loss(victims, node_id, missing)
            stopped.update(each for each in victims if choice is None or each.key in choice[2])
    return needed(draft.free, stopped, seats)


def _left_to_free(draft: Draft, node_id: str, slots: int) -> int:
    """Slots that a node lacks, once what is ending there has ended."""
    ending = (lease for lease in draft.leases_on(node_id) if lease.ends_by is not None)
    return slots - draft.free.free[node_id] - sum(lease.slots_on(node_id) for lease in ending)
