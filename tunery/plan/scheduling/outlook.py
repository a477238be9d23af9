"""What is expected of nodes: when their slots will be free, and what could be freed for others.

The outlook of a node holds until a fact changes the node, or until a moment that is known before.
A pass therefore looks at few nodes anew, however many there are.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Set
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

from schemas.units import Ms
from tunery.plan.scheduling.expectations import (
    expected_end,
    loss_ms,
    next_change,
)
from tunery.plan.scheduling.policy import Policy
from tunery.plan.scheduling.requests import LANES, Kind, PlanNode, Running

Release: TypeAlias = tuple[Ms, str]  # when, and of which node


@dataclass(frozen=True, slots=True)
class NodeOutlook:
    """What is expected of one node.

    releases: when 1, 2, … of its slots are free together; 0: they are. What never is, is left out.
    victims: leases that may be stopped now, those with the newest saved work first.
    freeable: slots that are free or of victims, for requests of each lane.
    until: all of this holds before then, if no fact changes it; None: it holds for ever.
    """

    releases: tuple[Ms, ...]
    victims: tuple[Running, ...]
    freeable: tuple[int, ...]
    until: Ms | None


def foresee(
    node: PlanNode,
    free: int,
    leases: Iterable[Running],
    at: Ms,
    policy: Policy,
    stopped: Set[str] = frozenset(),
) -> NodeOutlook:
    """The outlook of a node with so many free slots and these leases.

    Leases whose keys are in `stopped` are no victims.
    """
    ends: list[tuple[Ms, int]] = []
    victims: list[Running] = []
    freeable = [free] * len(LANES)
    until: Ms | None = None
    for lease in leases:
        slots = lease.slots_on(node.node_id)
        ends.append((expected_end(lease, at), slots))
        is_protected = lease.key in stopped or not policy.preempting
        if not is_protected and loss_ms(lease, at, policy) is not None:
            victims.append(lease)
            for lane in range(lease.lane):
                freeable[lane] += slots
        change = next_change(lease, at, policy)
        until = change if until is None else min(until, change)
    ends.sort()
    victims.sort(key=_newest_first)
    limits = tuple(min(node.slots, max(0, slots)) for slots in freeable)
    return NodeOutlook(_releases(node.slots, free, ends), tuple(victims), limits, until)


def _releases(slots: int, free: int, ends: list[tuple[Ms, int]]) -> tuple[Ms, ...]:
    releases = [0] * max(0, free)
    for ends_at, freed in ends:
        free += freed
        releases += [ends_at] * (free - len(releases))
    return tuple(releases[:slots])


def _newest_first(lease: Running) -> tuple[Ms, str]:
    return -lease.saved_at, lease.key


class ClusterOutlook:
    """The outlooks of all nodes, and orders of them.

    nodes: by node.
    released: for each kind of node and number of slots, when each node will have them, ascending.
    freeable: for each lane, kind and number of slots, nodes where so many could be freed, by name.
    """

    __slots__ = ("_changes", "freeable", "nodes", "released")

    def __init__(self) -> None:
        self.nodes: dict[str, NodeOutlook] = {}
        self.released: dict[tuple[Kind, int], list[Release]] = {}
        self.freeable: dict[tuple[int, Kind, int], list[str]] = {}
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
