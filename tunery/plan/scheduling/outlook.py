"""What is expected of nodes: when their slots will be free, and what could be freed for others.

The outlook of a node holds until a fact changes the node, or until a moment that is known before.
A pass therefore looks at few nodes anew, however many there are.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Set
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, TypeAlias

from schemas.units import Ms
from tunery.plan.scheduling.expectations import expected_end, loss_ms, next_change
from tunery.plan.scheduling.policy import Policy
from tunery.plan.scheduling.requests import LANES, PREMIUM, Kind, PlanNode, Running

Release: TypeAlias = tuple[Ms, str]  # when, and of which node
NO_LEASE: Final = (len(LANES), 0)  # of what goes on on a node, the lane and submission


@dataclass(frozen=True, slots=True)
class NodeOutlook:
    """Expectations of one node."""

    # times at which 1, 2, … of its slots are free together; 0: now. Counts that are never free are
    # left out.
    releases: tuple[Ms, ...]
    # leases that may be stopped now, those with the newest saved work first
    victims: tuple[Running, ...]
    # number of slots that are free or of victims, for requests of each lane
    freeable: tuple[int, ...]
    # earliest lane and submission of the leases that are not ending; those that may never be
    # stopped count as premium
    first: tuple[int, Ms]
    until: Ms | None  # end of validity if no fact changes; None: valid for ever


def foresee(
    node: PlanNode,
    free: int,
    leases: Iterable[Running],
    at: Ms,
    policy: Policy,
    stopped: Set[str] = frozenset(),
) -> NodeOutlook:
    """The outlook of a node with `free` free slots and these leases.

    Leases whose keys are in `stopped` are no victims.
    """
    ends: list[tuple[Ms, int]] = []
    victims: list[Running] = []
    freeable = [free] * len(LANES)
    first = NO_LEASE
    until: Ms | None = None
    for lease in leases:
        slots = lease.slots_on(node.node_id)
        ends.append((expected_end(lease, at), slots))
        if lease.ends_by is None:
            is_spared = lease.preemptions >= policy.preemptions_max
            first = min(first, (PREMIUM if is_spared else lease.lane, lease.submitted_at))
        is_protected = lease.key in stopped or not policy.preempting
        if not is_protected and loss_ms(lease, at, policy) is not None:
            victims.append(lease)
            for lane in range(lease.lane):
                freeable[lane] += slots
        change = next_change(lease, at, policy)
        until = change if until is None else min(until, change)
    ends.sort()
    victims.sort(key=lambda lease: (-lease.saved_at, lease.key))
    limits = tuple(min(node.slots, max(0, slots)) for slots in freeable)
    releases = _releases(node.slots, free, ends)
    return NodeOutlook(releases, tuple(victims), limits, first, until)


def _releases(slots: int, free: int, ends: list[tuple[Ms, int]]) -> tuple[Ms, ...]:
    releases = [0] * max(0, free)
    for ends_at, freed in ends:
        free += freed
        releases += [ends_at] * (free - len(releases))
    return tuple(releases[:slots])


class ClusterOutlook:
    """Outlooks of all nodes, and orders of them.

    nodes: outlook by node.
    released: for each kind of node and number of slots, when each node will have them, ascending.
    freeable: for each lane, kind and number of slots, nodes where so many could be freed, by name.
    latest: nodes of each kind, the latest of their first lanes and submissions first.
    """

    __slots__ = ("_changes", "freeable", "latest", "nodes", "released")

    def __init__(self) -> None:
        self.nodes: dict[str, NodeOutlook] = {}
        self.released: dict[tuple[Kind, int], list[Release]] = {}
        self.freeable: dict[tuple[int, Kind, int], list[str]] = {}
        self.latest: dict[Kind, list[tuple[int, Ms, str]]] = {}
        self._changes: list[Release] = []

    def put(self, node: PlanNode, outlook: NodeOutlook) -> None:
        """A node has this outlook now."""
        before = self.nodes.get(node.node_id)
        self.nodes[node.node_id] = outlook
        self._order(node, before, outlook)
        if outlook.until is not None:
            heappush(self._changes, (outlook.until, node.node_id))

    def remove(self, node: PlanNode) -> None:
        """A node is not here any more."""
        before = self.nodes.pop(node.node_id, None)
        if before is not None:
            self._order(node, before, None)

    def take_due(self, at: Ms) -> set[str]:
        """Nodes whose outlook is over by now."""
        due: set[str] = set()
        while self._changes and self._changes[0][0] <= at:
            until, node_id = heappop(self._changes)
            outlook = self.nodes.get(node_id)
            if outlook is not None and outlook.until == until:
                due.add(node_id)
        return due

    def _order(self, node: PlanNode, before: NodeOutlook | None, after: NodeOutlook | None) -> None:
        old = before.releases if before is not None else ()
        new = after.releases if after is not None else ()
        for number in range(max(len(old), len(new))):
            was = old[number] if number < len(old) else None
            will_be = new[number] if number < len(new) else None
            if was == will_be:
                continue
            releases = self.released.setdefault((node.kind, number + 1), [])
            if was is not None:
                del releases[bisect_left(releases, (was, node.node_id))]
            if will_be is not None:
                insort(releases, (will_be, node.node_id))
        for lane in range(len(LANES)):
            slots = before.freeable[lane] if before is not None and before.victims else 0
            frees = after.freeable[lane] if after is not None and after.victims else 0
            if slots == frees:
                continue
            if slots:
                names = self.freeable[lane, node.kind, slots]
                del names[bisect_left(names, node.node_id)]
            if frees:
                insort(self.freeable.setdefault((lane, node.kind, frees), []), node.node_id)
        latest = self.latest.setdefault(node.kind, [])
        if before is not None:
            del latest[bisect_left(latest, _latest_first(node.node_id, before))]
        if after is not None:
            insort(latest, _latest_first(node.node_id, after))


def _latest_first(node_id: str, outlook: NodeOutlook) -> tuple[int, Ms, str]:
    lane, submitted_at = outlook.first
    return -lane, -submitted_at, node_id
