"""One pass over the queue: what starts now, who is stopped for whom, what is held for the first."""

from dataclasses import dataclass

from schemas.units import Ms
from services.scheduler.domain.pool.planning.capacity import Capacity
from services.scheduler.domain.pool.planning.planning_state import PlanningState
from services.scheduler.domain.pool.planning.queue import in_order, shortest_first
from services.scheduler.domain.pool.planning.requests import (
    Request,
    RequestClass,
    Running,
    Seats,
    granted,
)
from services.scheduler.domain.pool.planning.reservation import Reservation, reserve
from services.scheduler.domain.pool.planning.victims import Victim, eligible, find_eviction


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
    """What to do now. It changes nothing: the caller does, with the facts that follow."""
    return _Pass(cluster, at).run()


def new_key(request: Request) -> str:
    """Names a lease that has no number yet."""
    return f"new/{request.job_id}"


class _Pass:
    """Working copies of one pass."""

    def __init__(self, cluster: PlanningState, at: Ms) -> None:
        self._cluster, self._at, self._policy = cluster, at, cluster.policy
        self._free: Capacity = cluster.capacity.copy()
        self._held = cluster.held.copy()
        self._closed: set[RequestClass] = set()  # classes that are not tried in order any more
        self._full: set[RequestClass] = set()  # of these: nothing of them fits now
        self._victims: dict[str, list[Victim]] | None = None
        self._new: list[Running] = []
        self._bound: dict[str, Seats] = {}  # what waits for seats of its own
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
        for job_id, seats in sorted(self._cluster.bound.items()):
            request = self._cluster.queue.requests[job_id]
            if all(self._free.free[node_id] >= slots for node_id, slots in seats):
                self._start(request, seats)
            else:
                self._bound[job_id] = seats
                self._occupy(request, seats)

    def _serve(self, lane: int) -> bool:
        """One lane in order of service; whether the pass goes on after it."""
        for request in in_order(self._cluster.queue, lane, self._held, self._closed):
            if request.job_id in self._started:
                continue
            if self._is_full():
                return False
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

    def _fit(self, request: Request) -> Seats | None:
        """Where a request fits now without delaying the reservation."""
        reservation = self._reservation
        if reservation is None or self._at + request.p90_ms <= reservation.at:
            return self._free.find_seats(request.needs)
        seats = reservation.spare.find_seats(request.needs)
        if seats is not None and all(
            self._free.has_memory(node_id, request.needs) for node_id, _ in seats
        ):
            return seats
        return None

    def _pass_over(self, request: Request) -> None:
        """A request does not start: those like it are not tried, and the first one is reserved."""
        needs = request.needs
        fits_now = self._reservation is not None and self._free.find_seats(needs) is not None
        if not fits_now:
            self._full.add(needs)
        if not fits_now or self._policy.shortest_backfill:
            self._closed.add(needs)
        if self._reservation is None and self._policy.reserving:
            running = [*self._cluster.running.values(), *self._new]
            self._reservation = reserve(self._free, running, request, self._at)

    def _backfill(self, reservation: Reservation) -> None:
        """What ends before the reservation, lane by lane, the shortest expected time first."""
        tried = 0
        for lane in range(len(self._cluster.queue.lanes)):
            for request in shortest_first(self._cluster.queue, lane, self._full):
                if request.needs in self._full:
                    continue
                tried += 1
                if tried > self._policy.backfill_max or self._is_full():
                    return
                if request.job_id in self._started or request.job_id in self._bound:
                    continue
                seats = self._fit(request)
                if seats is not None:
                    self._start(request, seats)
                elif self._free.find_seats(request.needs) is None:
                    self._full.add(request.needs)

    def _start(self, request: Request, seats: Seats) -> None:
        bound = self._bound.pop(request.job_id, None)
        if bound is not None:  # it fits elsewhere before its own seats are free
            self._free.give(bound, request.needs.memory_bytes)
            self._held[request.tenant] -= request.needs.slots
            self._new = [lease for lease in self._new if lease.key != new_key(request)]
        self._starts.append(Start(request, seats))
        self._started.add(request.job_id)
        self._occupy(request, seats)

    def _occupy(self, request: Request, seats: Seats) -> None:
        """These seats are not free in this pass any more."""
        self._free.take(seats, request.needs.memory_bytes)
        self._held[request.tenant] = self._held.get(request.tenant, 0) + request.needs.slots
        self._new.append(granted(request, seats, self._at, new_key(request)))
        reservation = self._reservation
        if reservation is None:
            return
        if self._at + request.p90_ms <= reservation.at:
            reservation.take_short(self._free, seats)
        else:
            reservation.take_long(request, seats)

    def _preempt(self, request: Request) -> bool:
        """Stop later lanes for a request, where that is worth it; whether it was."""
        if self._victims is None:
            self._victims = eligible(self._cluster.running.values(), self._at, self._policy)
        eviction = find_eviction(self._free, self._victims, request)
        if eviction is None:
            return False
        reservation = self._reservation
        if reservation is not None and self._at + request.p90_ms > reservation.at:
            reserved = {node_id for node_id, _ in reservation.seats}
            if any(node_id in reserved for node_id, _ in eviction.seats):
                return False
        stopped = frozenset(eviction.keys)
        for node_id, victims in self._victims.items():
            self._victims[node_id] = [each for each in victims if each.key not in stopped]
        self._preemptions.append(Preemption(request, eviction.seats, eviction.keys, eviction.loss))
        self._occupy(request, eviction.seats)
        return True
