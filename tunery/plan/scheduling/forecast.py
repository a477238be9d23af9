"""Expected starts of waiting requests: the queue is simulated without new requests."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Literal, TypeAlias

from schemas.units import Ms
from tunery.plan.scheduling.capacity import Choice
from tunery.plan.scheduling.expectations import expected_end
from tunery.plan.scheduling.plan import BEYOND, Plan, Preemption, Start
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.queue import Length, length
from tunery.plan.scheduling.requests import PREMIUM, Kind, PlanNode, Request, RequestClass, Seats

Quantile: TypeAlias = Literal["p50", "p90"]
QUANTILES: Final[tuple[Quantile, ...]] = ("p50", "p90")


def forecast(
    cluster: PlanningState,
    planned: Plan,
    order: Sequence[Request],
    at: Ms,
    quantile: Quantile,
    later: Request | None = None,
) -> dict[str, Ms]:
    """Expected starts by job, none before `at`; what never fits has none.

    planned: what the planner does now; requests that it starts, or stops others for, start at `at`.
    order: everything that waits, in order of service.
    quantile: how long everything is expected to last.
    later: a request that comes when it is submitted, and is the last of its lane then.
    Later preemptions are not foreseen, nor what will be past the promise of its lane by then.
    """
    return _Playback(cluster, planned, order, at, quantile, later).run()


# What holds slots: its end, a number, its seats, and memory of each slot.
_End: TypeAlias = tuple[Ms, int, Seats, int]
# The same on one node: its end, the number, slots and memory that it frees there.
_NodeEnd: TypeAlias = tuple[Ms, int, int, int]


@dataclass(slots=True, eq=False)
class _Class:
    """Requests that are alike to every node. No node comes or goes while the queue is played."""

    choice: Choice  # nodes that they may have
    kinds: frozenset[Kind]  # kinds of these nodes
    nodes: tuple[PlanNode, ...]  # nodes that could hold one of them
    is_full: bool = False  # no request of the class fits at this moment


@dataclass(slots=True, eq=False)
class _Line:
    """Requests of one class that are served in one turn."""

    of: _Class
    turn: int  # the planner's turn: lane by lane, then premium requests beyond the cap
    # requests with their number, in order of service
    members: deque[tuple[int, Request]] = field(default_factory=deque)
    _by_length: list[tuple[Length, Request]] | None = None

    def leave_out(self, started: Collection[str]) -> bool:
        """Remove members that have started from the front; return whether any are left."""
        members = self.members
        while members and members[0][1].job_id in started:
            members.popleft()
        return bool(members)

    def shortest(self, started: Collection[str]) -> Request | None:
        """The shortest request that has not started; None: all have."""
        if self._by_length is None:
            self._by_length = [(length(request), request) for _, request in self.members]
            heapify(self._by_length)
        by_length = self._by_length
        while by_length and by_length[0][1].job_id in started:
            heappop(by_length)
        return by_length[0][1] if by_length else None


@dataclass(slots=True, eq=False)
class _Promise:
    """When and where a request that is blocked should fit, and of which kinds it may have nodes."""

    at: Ms
    node_id: str
    kinds: frozenset[Kind]
    spare: int  # what others may hold of that node beyond that moment


class _Playback:
    """Free slots, ends to come and the rest of the queue, at one moment after another.

    At each moment it does what the planner would do, but for stops and for the limits of a pass.
    What is larger than any node has no reservation; it starts once whole nodes are free.
    """

    def __init__(
        self,
        cluster: PlanningState,
        planned: Plan,
        order: Sequence[Request],
        at: Ms,
        quantile: Quantile,
        later: Request | None,
    ) -> None:
        self._at, self._quantile, self._policy = at, quantile, cluster.policy
        self._free = cluster.capacity.copy()
        self._number = 0
        self._ends: list[_End] = []
        self._on_node: dict[str, list[_NodeEnd]] = {node_id: [] for node_id in self._free.nodes}
        for lease in cluster.running.values():
            lasts_ms = lease.p50_ms if quantile == "p50" else lease.p90_ms
            self._expect(expected_end(lease, at, lasts_ms), lease.seats, lease.memory_bytes)
        self._starts: dict[str, Ms] = {}
        self._current: list[_Promise] = []  # those of this moment
        for request, seats in _decided(cluster, planned):
            self._start(request, seats)
        self._promises: dict[str, _Promise | None] = {}
        self._classes: dict[RequestClass, _Class] = {}
        self._lines = self._stand_in_line(cluster, planned, order)
        self._later: list[tuple[Ms, _Line]] = []
        if later is not None:
            lane = cluster.queue.lane_of(later)
            before = sum(cluster.queue.lane_of(each) <= lane for each in order)
            line = _Line(self._class_of(later.needs), lane, deque([(2 * before - 1, later)]))
            self._later.append((later.submitted_at, line))

    def run(self) -> dict[str, Ms]:
        self._serve()
        while (self._ends and self._lines) or self._later:
            moments = [*(end[0] for end in self._ends[:1]), *(at for at, _ in self._later)]
            self._at = max(self._at, min(moments))
            while self._ends and self._ends[0][0] <= self._at:
                self._release(heappop(self._ends))
            if self._later and self._later[0][0] <= self._at:
                self._lines.append(self._later.pop()[1])
            self._serve()
        return self._starts

    def _stand_in_line(
        self, cluster: PlanningState, planned: Plan, order: Sequence[Request]
    ) -> list[_Line]:
        lines: dict[tuple[RequestClass, int], _Line] = {}
        for number, request in enumerate(order):
            if request.job_id in self._starts:
                continue
            needs, turn = request.needs, cluster.queue.lane_of(request)
            if planned.beyond and request.lane == PREMIUM and needs in planned.beyond:
                turn = BEYOND
            line = lines.get((needs, turn))
            if line is None:
                line = lines[needs, turn] = _Line(self._class_of(needs), turn)
            line.members.append((2 * number, request))  # one that comes later stands between two
        return [*lines.values()]

    def _class_of(self, needs: RequestClass) -> _Class:
        members = self._classes.get(needs)
        if members is None:
            free, choice = self._free, self._free.choice(needs)
            could = (
                node
                for node_id, node in free.nodes.items()
                if node_id not in choice.excluded and free.could_hold(node, needs)
            )
            members = self._classes[needs] = _Class(choice, frozenset(choice.kinds), (*could,))
        return members

    def _serve(self) -> None:
        """All that fits starts, line by line in order. The first that does not has a promise, and
        the first that waits for other kinds of nodes alone has one, too.

        Once all kinds that the rest may have are promised, it starts in order of its length.
        """
        self._current.clear()
        for members in self._classes.values():
            members.is_full = False
        heads = [(line.members[0][0], index) for index, line in enumerate(self._lines)]
        heapify(heads)
        blocked: list[_Line] = []
        left: frozenset[Kind] = frozenset()  # kinds of nodes that are left to backfill
        while heads:
            _, index = heads[0]
            line = self._lines[index]
            members = line.of
            is_left = bool(left) and left.issuperset(members.kinds)
            request = line.members[0][1]
            seats = None if is_left or members.is_full else self._fit(request, members)
            if seats is not None:
                self._start(request, seats)
                if line.leave_out(self._starts):
                    heapreplace(heads, (line.members[0][0], index))
                else:
                    heappop(heads)
                continue
            heappop(heads)
            blocked.append(line)
            if is_left:
                continue
            if all(members.kinds.isdisjoint(each.kinds) for each in self._current):
                self._promise(request, members)
            if self._policy.shortest_backfill and line.turn >= self._policy.preempting:
                concerned = (each.kinds for each in self._current if each.kinds & members.kinds)
                left = left.union(*concerned)
        if self._current and self._policy.shortest_backfill:
            self._backfill(blocked)
        self._lines = [line for line in self._lines if line.members]

    def _backfill(self, blocked: Sequence[_Line]) -> None:
        """Start what delays no reservation, turn by turn, the shortest first."""
        shortest: list[tuple[int, Length, int, Request]] = []

        def add(index: int) -> None:
            request = blocked[index].shortest(self._starts)
            if request is not None:
                heappush(shortest, (blocked[index].turn, length(request), index, request))

        for index, line in enumerate(blocked):
            if not line.of.is_full:
                add(index)
        while shortest:
            *_, index, request = heappop(shortest)
            seats = self._fit(request, blocked[index].of)
            if seats is not None:  # otherwise what is longer would delay a promise as well
                self._start(request, seats)
                blocked[index].leave_out(self._starts)
                add(index)

    def _fit(self, request: Request, members: _Class) -> Seats | None:
        """Return seats where a request delays no request with a reservation; None: nowhere."""
        choice, kept = members.choice, set[str]()
        ends_at = self._at + self._length(request)
        for each in self._current:
            is_delayed = ends_at > each.at and each.spare < choice.needs.slots
            if is_delayed and not members.kinds.isdisjoint(each.kinds):
                kept.add(each.node_id)
        seats = self._free.find_seats_of(choice, kept)
        if seats is None and (not kept or self._free.find_seats_of(choice) is None):
            members.is_full = True
        return seats

    def _promise(self, blocked: Request, members: _Class) -> None:
        """The promise to one that is blocked, computed once; what never fits has none."""
        job_id = blocked.job_id
        kept = self._promises.get(job_id)
        if job_id not in self._promises or (kept is not None and kept.at <= self._at):
            kept = self._promises[job_id] = self._first_node(members)
        if kept is not None:
            self._current.append(kept)

    def _first_node(self, members: _Class) -> _Promise | None:
        """The earliest time at which a node has the slots and memory; on a tie the fullest node."""
        free, needs = self._free, members.choice.needs
        shares_memory = needs.device == "cpu"
        first: tuple[Ms, Kind, int, str] | None = None
        for node in members.nodes:
            node_id = node.node_id
            at, slots, freed_bytes = self._at, free.free[node_id], 0
            ends = iter(self._on_node[node_id])
            while slots < needs.slots or (
                shares_memory and not free.has_memory(node_id, needs, freed_bytes)
            ):
                end = next(ends, None)
                if end is None or (first is not None and end[0] > first[0]):
                    break
                at, slots, freed_bytes = end[0], slots + end[2], freed_bytes + end[3]
            else:
                choice = (at, node.kind, slots, node_id)
                first = choice if first is None else min(first, choice)
        if first is None:
            return None
        at, _, slots, node_id = first
        return _Promise(at, node_id, members.kinds, slots - needs.slots)

    def _start(self, request: Request, seats: Seats) -> None:
        self._starts[request.job_id] = self._at
        ends_at = self._at + max(1, self._length(request))
        self._free.take(seats, request.needs.memory_bytes)
        self._expect(ends_at, seats, request.needs.memory_bytes)
        for promise in self._current:
            if ends_at > promise.at:
                for node_id, slots in seats:
                    if node_id == promise.node_id:
                        promise.spare -= slots

    def _expect(self, ends_at: Ms, seats: Seats, memory_bytes: int) -> None:
        """Note when the lease on these seats is expected to end."""
        self._number += 1
        heappush(self._ends, (ends_at, self._number, seats, memory_bytes))
        for node_id, slots in seats:
            if node_id in self._on_node:
                freed = (ends_at, self._number, slots, slots * memory_bytes)
                insort(self._on_node[node_id], freed)

    def _release(self, end: _End) -> None:
        ends_at, number, seats, memory_bytes = end
        self._free.give(seats, memory_bytes)
        for node_id, _ in seats:
            if node_id in self._on_node:
                ends = self._on_node[node_id]
                del ends[bisect_left(ends, (ends_at, number, 0, 0))]

    def _length(self, request: Request) -> Ms:
        return request.p50_ms if self._quantile == "p50" else request.p90_ms


def _decided(cluster: PlanningState, planned: Plan) -> Iterable[tuple[Request, Seats]]:
    """Yield requests that have seats already: free now, or being freed by others."""
    decided: tuple[Start | Preemption, ...] = (*planned.starts, *planned.preemptions)
    yield from ((each.request, each.seats) for each in decided)
    jobs = {each.request.job_id for each in decided}
    for job_id, seats in sorted(cluster.bound.items()):
        if job_id not in jobs:
            yield cluster.queue.requests[job_id], seats
