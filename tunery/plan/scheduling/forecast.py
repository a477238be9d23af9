"""When what waits is expected to start: the queue is played through, and nothing new comes."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final, Literal, TypeAlias

from schemas.units import Ms
from tunery.plan.scheduling.draft import Draft, new_key
from tunery.plan.scheduling.expectations import expected_end
from tunery.plan.scheduling.plan import Plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.requests import Request, RequestClass, Running, Seats, granted
from tunery.plan.scheduling.reservation import Reservation, reserve

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


class _Playback:
    """What runs, ends to come and the rest of the queue, at one moment after another."""

    def __init__(
        self,
        cluster: PlanningState,
        planned: Plan,
        order: Sequence[Request],
        at: Ms,
        quantile: Quantile,
    ) -> None:
        self._at, self._quantile = at, quantile
        policy = replace(cluster.policy, preempting=0)
        self._state = PlanningState(cluster.capacity.nodes.values(), policy)
        for lease in cluster.running.values():
            self._state.start(self._timed(lease))
        self._free = self._state.capacity
        self._ends = [(expected_end(lease, at), key) for key, lease in self._state.running.items()]
        heapify(self._ends)
        self._starts: dict[str, Ms] = {}
        for request, seats in _decided(cluster, planned):
            self._start(request, seats)
        self._waiting: dict[RequestClass, deque[tuple[int, Request]]] = {}
        for number, request in enumerate(order):
            if request.job_id not in self._starts:
                self._waiting.setdefault(request.needs, deque()).append((number, request))
        self._reservation: Reservation | None = None

    def run(self) -> dict[str, Ms]:
        self._serve()
        while self._ends and self._waiting:
            self._at, _ = self._ends[0]
            while self._ends and self._ends[0][0] == self._at:
                _, key = heappop(self._ends)
                self._state.end(key)
            self._serve()
        return self._starts

    def _serve(self) -> None:
        """All that fits starts, class by class in order; the first that does not has a promise."""
        heads = [(members[0][0], needs) for needs, members in self._waiting.items()]
        heads.sort(key=_number)
        order = [(number, index) for index, (number, _) in enumerate(heads)]
        blocked: Request | None = None
        while order:
            _, index = heappop(order)
            needs = heads[index][1]
            members = self._waiting[needs]
            request = members[0][1]
            seats = self._fit(request, blocked)
            if seats is None:
                blocked = blocked or request
                continue
            self._start(request, seats)
            members.popleft()
            if members:
                heappush(order, (members[0][0], index))
            else:
                del self._waiting[needs]

    def _fit(self, request: Request, blocked: Request | None) -> Seats | None:
        """Where a request fits without a delay for the first one that is blocked."""
        seats = self._free.find_seats(request.needs)
        if seats is None or blocked is None:
            return seats
        reservation = self._reserve(blocked)
        if reservation is None or self._at + self._length(request) <= reservation.at:
            return seats
        reserved = [(node_id, self._free.free[node_id]) for node_id, _ in reservation.seats]
        for node_id, _ in reserved:
            self._free.set_free(node_id, 0)
        seats = self._free.find_seats(request.needs)
        for node_id, slots in reserved:
            self._free.set_free(node_id, slots)
        return seats

    def _reserve(self, blocked: Request) -> Reservation | None:
        """The promise to the first one that is blocked; it is computed once."""
        kept = self._reservation
        if kept is None or kept.request.job_id != blocked.job_id or kept.at <= self._at:
            self._state.advance(self._at)
            self._reservation = reserve(Draft(self._state, self._at), blocked)
        return self._reservation

    def _start(self, request: Request, seats: Seats) -> None:
        key = new_key(request)
        lease = self._timed(granted(request, seats, self._at, key))
        self._starts[request.job_id] = self._at
        self._state.start(lease)
        heappush(self._ends, (self._at + max(1, lease.p90_ms), key))

    def _length(self, request: Request) -> Ms:
        return request.p50_ms if self._quantile == "p50" else request.p90_ms

    def _timed(self, lease: Running) -> Running:
        """A lease that is expected to last as long as the quantile says."""
        return replace(lease, p90_ms=lease.p50_ms) if self._quantile == "p50" else lease


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
