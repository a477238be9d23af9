"""When what waits is expected to start: the queue is played through, and nothing new comes."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final, Literal, TypeAlias

from schemas.units import Ms
from tunery.plan.scheduling.capacity import Capacity
from tunery.plan.scheduling.expectations import expected_end
from tunery.plan.scheduling.plan import Plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.requests import Kind, Request, RequestClass, Seats

Quantile: TypeAlias = Literal["p50", "p90"]
QUANTILES: Final[tuple[Quantile, ...]] = ("p50", "p90")


def forecast(
    cluster: PlanningState, planned: Plan, order: Sequence[Request], at: Ms, quantile: Quantile
) -> dict[str, Ms]:
    """Expected starts by job, none before `at`; what never fits has none.

    planned: what the planner does now; requests that it starts, or stops others for, start at `at`.
    order: everything that waits, in order of service.
    quantile: how long everything is expected to last.
    Later preemptions are not foreseen.
    """
    return _Playback(cluster, planned, order, at, quantile).run()


# What holds slots: its end, a number, its seats, and memory of each slot.
_End: TypeAlias = tuple[Ms, int, Seats, int]
# The same on one node: its end, the number, slots and memory that it frees there.
_NodeEnd: TypeAlias = tuple[Ms, int, int, int]


@dataclass(frozen=True, slots=True)
class _Promise:
    """When and where a request that is blocked should fit, and of which kinds it may have nodes."""

    at: Ms
    node_id: str
    kinds: frozenset[Kind]


class _Playback:
    """Free slots, ends to come and the rest of the queue, at one moment after another.

    What is larger than any node has no reservation; it starts once whole nodes are free.
    """

    def __init__(
        self,
        cluster: PlanningState,
        planned: Plan,
        order: Sequence[Request],
        at: Ms,
        quantile: Quantile,
    ) -> None:
        self._at, self._quantile = at, quantile
        self._free = Capacity(cluster.capacity.nodes.values())
        self._number = 0
        self._ends: list[_End] = []
        self._on_node: dict[str, list[_NodeEnd]] = {node_id: [] for node_id in self._free.nodes}
        for lease in cluster.running.values():
            timed = replace(lease, p90_ms=lease.p50_ms) if quantile == "p50" else lease
            self._hold(expected_end(timed, at), lease.seats, lease.memory_bytes)
        self._starts: dict[str, Ms] = {}
        for request, seats in _decided(cluster, planned):
            self._start(request, seats)
        self._waiting: dict[RequestClass, deque[tuple[int, Request]]] = {}
        for number, request in enumerate(order):
            if request.job_id not in self._starts:
                self._waiting.setdefault(request.needs, deque()).append((number, request))
        self._promises: dict[str, _Promise | None] = {}
        self._kinds: dict[RequestClass, frozenset[Kind]] = {}

    def run(self) -> dict[str, Ms]:
        self._serve()
        while self._ends and self._waiting:
            self._at = self._ends[0][0]
            while self._ends and self._ends[0][0] == self._at:
                self._release(heappop(self._ends))
            self._serve()
        return self._starts

    def _serve(self) -> None:
        """All that fits starts, class by class in order. The first that does not has a promise, and
        the first that waits for other kinds of nodes alone has one, too.
        """
        heads = [(members[0][0], needs) for needs, members in self._waiting.items()]
        heads.sort(key=_number)
        order = [(number, index) for index, (number, _) in enumerate(heads)]
        promises: list[_Promise] = []
        while order:
            _, index = heappop(order)
            needs = heads[index][1]
            members = self._waiting[needs]
            request = members[0][1]
            seats = self._fit(request, promises)
            if seats is None:
                kinds = self._kinds_of(needs)
                if all(kinds.isdisjoint(each.kinds) for each in promises):
                    promise = self._promise(request, kinds)
                    promises += () if promise is None else (promise,)
                continue
            self._start(request, seats)
            members.popleft()
            if members:
                heappush(order, (members[0][0], index))
            else:
                del self._waiting[needs]

    def _fit(self, request: Request, promises: Sequence[_Promise]) -> Seats | None:
        """Where a request fits without a delay for those that have promises."""
        free, needs = self._free, request.needs
        seats = free.find_seats(needs)
        if seats is None or not promises:
            return seats
        ends_at = self._at + self._length(request)
        delayed = [each for each in promises if ends_at > each.at]
        if not delayed:
            return seats
        kinds = self._kinds_of(needs)
        nodes = [each.node_id for each in delayed if not kinds.isdisjoint(each.kinds)]
        kept = {node_id: free.free[node_id] for node_id in nodes}
        for node_id in kept:
            free.set_free(node_id, 0)
        seats = free.find_seats(needs)
        for node_id, slots in kept.items():
            free.set_free(node_id, slots)
        return seats

    def _kinds_of(self, needs: RequestClass) -> frozenset[Kind]:
        kinds = self._kinds.get(needs)
        if kinds is None:
            kinds = self._kinds[needs] = frozenset(self._free.kinds(needs))
        return kinds

    def _promise(self, blocked: Request, kinds: frozenset[Kind]) -> _Promise | None:
        """The promise to one that is blocked, computed once; None: it never fits."""
        job_id = blocked.job_id
        kept = self._promises.get(job_id)
        if job_id not in self._promises or (kept is not None and kept.at <= self._at):
            first = self._first_node(blocked.needs)
            kept = None if first is None else _Promise(first[0], first[3], kinds)
            self._promises[job_id] = kept
        return kept

    def _first_node(self, needs: RequestClass) -> tuple[Ms, Kind, int, str] | None:
        """When a node has slots and memory first; its kind, its free slots then, its name."""
        excluded, free = self._free.excluded(needs), self._free
        first: tuple[Ms, Kind, int, str] | None = None
        for node_id, node in free.nodes.items():
            if node_id in excluded or not free.could_hold(node, needs):
                continue
            at, slots, freed_bytes = self._at, free.free[node_id], 0
            ends = iter(self._on_node[node_id])
            while slots < needs.slots or not free.has_memory(node_id, needs, freed_bytes):
                end = next(ends, None)
                if end is None or (first is not None and end[0] > first[0]):
                    break
                at, slots, freed_bytes = end[0], slots + end[2], freed_bytes + end[3]
            else:
                choice = (at, node.kind, slots, node_id)
                first = choice if first is None else min(first, choice)
        return first

    def _start(self, request: Request, seats: Seats) -> None:
        self._starts[request.job_id] = self._at
        ends_at = self._at + max(1, self._length(request))
        self._hold(ends_at, seats, request.needs.memory_bytes)

    def _hold(self, ends_at: Ms, seats: Seats, memory_bytes: int) -> None:
        self._number += 1
        end = (ends_at, self._number, seats, memory_bytes)
        self._free.take(seats, memory_bytes)
        heappush(self._ends, end)
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
    """What has its seats already: they are free now, or others were told to free them."""
    starting = {start.request.job_id for start in planned.starts}
    yield from ((start.request, start.seats) for start in planned.starts)
    yield from ((stop.request, stop.seats) for stop in planned.preemptions)
    for job_id, seats in sorted(cluster.bound.items()):
        if job_id not in starting:
            yield cluster.queue.requests[job_id], seats


def _number(head: tuple[int, RequestClass]) -> int:
    return head[0]
