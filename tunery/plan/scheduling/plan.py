"""One pass over the queue: what starts now, who is stopped for whom, what is held for the first."""

from dataclasses import dataclass

from schemas.units import Ms
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.queue import in_order, shortest_first
from tunery.plan.scheduling.requests import (
    Request,
    RequestClass,
    Seats,
)
from tunery.plan.scheduling.reservation import Reservation, reserve
from tunery.plan.scheduling.victims import find_eviction


@dataclass(frozen=True, slots=True)
class Start:
    """A request that starts now.

    request: which one.
    seats: the slots that it gets.
    """

    request: Request
    seats: Seats


@dataclass(frozen=True, slots=True)
class Preemption:
    """Leases that are told to end for a request.

    request: which one.
    seats: what it will have then; nothing else may start there.
    keys: of the leases.
    loss: slots × time that they lose.
    """

    request: Request
    seats: Seats
    keys: tuple[str, ...]
    loss: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions of one pass, in order.

    starts: what starts.
    preemptions: what is stopped for whom.
    reservation: the first request that does not fit, where and when it will; None: there is none.
    more: the pass reached its limits, so that another one has to follow.
    """

    starts: tuple[Start, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    reservation: Reservation | None = None
    more: bool = False


def plan(cluster: PlanningState, at: Ms) -> Plan:
    """What to do now. It changes no facts: the caller does, with those that follow."""
    cluster.advance(at)
    return _Pass(cluster, at).run()


class _Pass:
    """Working copies of one pass."""

    def __init__(self, cluster: PlanningState, at: Ms) -> None:
        self._cluster, self._at, self._policy = cluster, at, cluster.policy
        self._draft = Draft(cluster, at)
        self._closed: set[RequestClass] = set()  # classes that are not tried in order any more
        self._full: set[RequestClass] = set()  # classes of which nothing fits now
        self._tight: set[RequestClass] = set()  # nor beyond the reservation
        self._bound: set[str] = set()  # jobs that wait for seats of their own
        self._reservation: Reservation | None = None
        self._starts: list[Start] = []
        self._started: set[str] = set()
        self._preemptions: list[Preemption] = []
        self._more = False

    def run(self) -> Plan:
        # 1. Seats that leases were told to free belong to the request they were freed for.
        self._start_bound()
        # 2. Lanes in order: an earlier one never waits for the reservation of a later one.
        for lane in range(len(self._cluster.queue.lanes)):
            if not self._serve(lane):
                break
        # 3. What is left may start beside the reservation, if it does not delay it.
        if self._reservation is not None and self._policy.shortest_backfill:
            self._backfill(self._reservation)
        return Plan(tuple(self._starts), tuple(self._preemptions), self._reservation, self._more)

    def _start_bound(self) -> None:
        free = self._draft.free.free
        for job_id, seats in self._cluster.claims().items():
            request = self._cluster.queue.requests[job_id]
            if all(free[node_id] >= slots for node_id, slots in seats) and all(
                self._draft.free.has_memory(node_id, request.needs) for node_id, _ in seats
            ):
                self._start(request, seats)
            else:
                self._bound.add(job_id)
                self._occupy(request, seats)

    def _serve(self, lane: int) -> bool:
        """One lane in order of service; whether the pass goes on after it."""
        for request in in_order(self._cluster.queue, lane, self._draft.more, self._closed):
            if request.job_id in self._started:
                continue
            if self._is_full():
                return False
            if self._is_too_large(request.needs):
                continue
            seats = self._fit(request)
            if seats is not None:
                self._start(request, seats)
            elif request.job_id in self._bound:
                continue
            elif lane >= self._policy.preempting or not self._preempt(request):
                self._pass_over(request)
                if not self._policy.skipping or self._leaves_rest_to_backfill(lane):
                    return False
        return True

    def _leaves_rest_to_backfill(self, lane: int) -> bool:
        """Once there is a reservation, what may stop nobody is tried in order of length."""
        policy = self._policy
        is_reserved = self._reservation is not None and policy.shortest_backfill
        return is_reserved and lane >= policy.preempting

    def _is_full(self) -> bool:
        started, preempted = len(self._starts), len(self._preemptions)
        policy = self._policy
        self._more = started >= policy.starts_max or preempted >= policy.preempts_max
        return self._more

    def _is_too_large(self, needs: RequestClass) -> bool:
        """Whether no node could ever hold a request that may have only one."""
        if self._policy.spanning or needs.slots <= self._draft.free.largest(needs):
            return False
        self._full.add(needs)
        self._closed.add(needs)
        return True

    def _fit(self, request: Request) -> Seats | None:
        """Where a request fits now without delaying the reservation."""
        needs, reservation = request.needs, self._reservation
        if needs in self._full:
            return None
        if reservation is None or self._at + request.p90_ms <= reservation.at:
            seats = self._draft.free.find_seats(needs)
            if seats is None:
                self._full.add(needs)
            return seats
        if needs in self._tight:
            return None
        seats = reservation.spare.find_seats(needs)
        if seats is not None and all(
            self._draft.free.has_memory(node_id, needs) for node_id, _ in seats
        ):
            return seats
        self._tight.add(needs)
        return None

    def _pass_over(self, request: Request) -> None:
        """A request does not start: those like it are not tried, and the first one is reserved."""
        needs = request.needs
        if self._reservation is None or self._draft.free.find_seats(needs) is None:
            self._full.add(needs)
        if needs in self._full or self._policy.shortest_backfill:
            self._closed.add(needs)
        if self._reservation is None and self._policy.reserving:
            self._reservation = reserve(self._draft, request)

    def _backfill(self, reservation: Reservation) -> None:
        """What ends before the reservation, lane by lane, the shortest expected time first."""
        tried = 0
        for lane in range(len(self._cluster.queue.lanes)):
            for request in shortest_first(self._cluster.queue, lane, self._full):
                needs = request.needs
                if needs in self._full:
                    continue
                tried += 1
                if tried > self._policy.backfill_max or self._is_full():
                    return
                if request.job_id in self._started or request.job_id in self._bound:
                    continue
                seats = self._fit(request)
                if seats is not None:
                    self._start(request, seats)
                elif self._draft.free.find_seats(needs) is None:
                    self._full.add(needs)

    def _start(self, request: Request, seats: Seats) -> None:
        if request.job_id in self._bound:  # it fits elsewhere before its own seats are free
            self._bound.discard(request.job_id)
            self._draft.vacate(request)
            self._full.clear()
            self._tight.clear()
        self._starts.append(Start(request, seats))
        self._started.add(request.job_id)
        self._occupy(request, seats)

    def _occupy(self, request: Request, seats: Seats) -> None:
        """These seats are not free in this pass any more."""
        self._draft.occupy(request, seats)
        reservation = self._reservation
        if reservation is None:
            return
        if self._at + request.p90_ms <= reservation.at:
            reservation.take_short(self._draft.free, seats)
        else:
            reservation.take_long(request, seats)

    def _preempt(self, request: Request) -> bool:
        """Stop later lanes for a request, where that is worth it; whether it was."""
        eviction = find_eviction(self._draft, request)
        if eviction is None:
            return False
        reservation = self._reservation
        if reservation is not None and self._at + request.p90_ms > reservation.at:
            reserved = {node_id for node_id, _ in reservation.seats}
            if any(node_id in reserved for node_id, _ in eviction.seats):
                return False
        self._draft.stop(eviction.keys)
        self._preemptions.append(Preemption(request, eviction.seats, eviction.keys, eviction.loss))
        self._occupy(request, eviction.seats)
        return True
