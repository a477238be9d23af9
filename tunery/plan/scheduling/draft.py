"""The planning state as it will be once the decisions of a pass so far are carried out."""

from collections.abc import Iterator
from heapq import merge

from schemas.units import Ms
from tunery.plan.scheduling.capacity import Capacity
from tunery.plan.scheduling.outlook import NodeOutlook, Release, foresee
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.requests import PREMIUM, Kind, Request, Running, Seats, granted


class Draft:
    """Decisions of a pass so far, on top of a planning state that does not change.

    free: remaining free capacity.
    more: number of slots that each tenant gained.
    premium: slots that premium holds, by kind of node.
    at: current time.
    policy: policy of the planning state.
    claimed: nodes where leases make way for a late request.
    """

    __slots__ = (
        "_changed",
        "_new",
        "_state",
        "_stopped",
        "at",
        "claimed",
        "free",
        "more",
        "policy",
        "premium",
    )

    def __init__(self, state: PlanningState, at: Ms) -> None:
        self._state, self.at, self.policy = state, at, state.policy
        self.free: Capacity = state.capacity.copy()
        self.more: dict[str, int] = {}
        self.premium: dict[Kind, int] = state.premium.copy()
        self._new: dict[str, Running] = {}
        self._stopped: set[str] = set()
        self.claimed: set[str] = set()
        self._changed: dict[str, NodeOutlook | None] = {}  # None: not known yet

    def occupy(self, request: Request, seats: Seats) -> None:
        """Give a request these seats, now or once they are free."""
        lease = granted(request, seats, self.at, new_key(request))
        self._new[lease.key] = lease
        self.free.take(seats, lease.memory_bytes)
        self._count(lease, 1)

    def vacate(self, request: Request) -> None:
        """Give up the seats that a request was to have."""
        lease = self._new.pop(new_key(request))
        self.free.give(lease.seats, lease.memory_bytes)
        self._count(lease, -1)

    def stop(self, keys: tuple[str, ...]) -> None:
        """Mark leases that have to end."""
        self._stopped.update(keys)
        for key in keys:
            self._changed.update((node_id, None) for node_id, _ in self._state.running[key].seats)

    def leases_on(self, node_id: str) -> list[Running]:
        """Leases that hold slots of a node, or will hold them."""
        new = (lease for lease in self._new.values() if lease.slots_on(node_id))
        return [*self._state.leases_on(node_id), *new]

    def outlook(self, node_id: str) -> NodeOutlook:
        """Return the outlook of a node, with the decisions so far."""
        if node_id not in self._changed:
            return self._state.outlook.nodes[node_id]
        outlook = self._changed[node_id]
        if outlook is None:
            node, free = self.free.nodes[node_id], self.free.free[node_id]
            leases = self.leases_on(node_id)
            outlook = foresee(node, free, leases, self.at, self.policy, self._stopped)
            self._changed[node_id] = outlook
        return outlook

    def releases(self, kind: Kind, slots: int) -> Iterator[Release]:
        """Times at which nodes of a kind will have enough free slots, earliest first."""
        kept = self._state.outlook.released.get((kind, slots), ())
        changed = sorted(
            (outlook.releases[slots - 1], node_id)
            for node_id, outlook in self._changed_of(kind)
            if len(outlook.releases) >= slots
        )
        return merge((each for each in kept if each[1] not in self._changed), changed)

    def latest(self, kind: Kind) -> Iterator[str]:
        """Nodes of a kind, those first whose leases are of the latest lanes and submissions.

        As of the beginning of the pass.
        """
        return (node_id for _, _, node_id in self._state.outlook.latest.get(kind, ()))

    def freeable(self, lane: int, kind: Kind, slots: int) -> Iterator[str]:
        """Nodes of a kind on which a request of a lane has or could get enough free slots."""
        kept = self._state.outlook.freeable
        for number in range(slots, self.free.largest_of(kind) + 1):
            for node_id in kept.get((lane, kind, number), ()):
                if node_id not in self._changed:
                    yield node_id
        for node_id, outlook in self._changed_of(kind):
            if outlook.victims and outlook.freeable[lane] >= slots:
                yield node_id

    def _changed_of(self, kind: Kind) -> Iterator[tuple[str, NodeOutlook]]:
        for node_id in sorted(self._changed):
            node = self.free.nodes.get(node_id)
            if node is not None and node.kind == kind:
                yield node_id, self.outlook(node_id)

    def _count(self, lease: Running, sign: int) -> None:
        self._changed.update((node_id, None) for node_id, _ in lease.seats)
        self.more[lease.tenant] = self.more.get(lease.tenant, 0) + sign * lease.slots
        if lease.lane == PREMIUM:
            for node_id, slots in lease.seats:
                kind = self.free.nodes[node_id].kind
                self.premium[kind] = self.premium.get(kind, 0) + sign * slots


def new_key(request: Request) -> str:
    """Names a lease that has no number yet."""
    return f"new/{request.job_id}"
