"""One pass over the queue: what starts now, who is stopped for whom, what is held for the first."""

from dataclasses import dataclass

from schemas.units import Ms
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.premium_cap import PremiumCap
from tunery.plan.scheduling.queue import in_order, shortest_first
from tunery.plan.scheduling.requests import (
    LANES,
    PREMIUM,
    Kind,
    Request,
    RequestClass,
    Seats,
)
from tunery.plan.scheduling.reservation import Reservation, reserve, spare_beside
from tunery.plan.scheduling.victims import Eviction, find_eviction

BEYOND = len(LANES)  # the turn of what is beyond the cap of premium: after all lanes


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
    reservations: the first request that does not fit, where and when it will; and of those that
      wait for other kinds of nodes alone the first one, too.
    beyond: classes of premium requests that came after all lanes, because premium had its cap.
    more: the pass reached its limits, so that another one has to follow.
    """

    starts: tuple[Start, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    beyond: frozenset[RequestClass] = frozenset()
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
        self._cap = PremiumCap(cluster, self._draft.premium)
        self._beyond: set[RequestClass] = set()  # premium that passes its cap
        self._closed: set[RequestClass] = set()  # classes that are not tried in order any more
        self._full: set[RequestClass] = set()  # classes of which nothing fits now
        self._tight: set[RequestClass] = set()  # nor beyond the reservation
        self._bound: set[str] = set()  # jobs that wait for seats of their own
        self._reservations: list[Reservation] = []
        self._kinds: dict[RequestClass, tuple[Kind, ...]] = {}
        self._left: set[Kind] = set()  # of nodes that are left to backfill
        self._starts: list[Start] = []
        self._started: set[str] = set()
        self._preemptions: list[Preemption] = []
        self._more = False

    def run(self) -> Plan:
        # 1. Seats that leases were told to free belong to the request they were freed for.
        self._start_bound()
        # 2. Lanes in order: an earlier one never waits for the reservation of a later one. What is
        #    beyond the cap of premium comes last.
        for turn in (*range(len(LANES)), BEYOND):
            if not self._serve(turn):
                break
            if turn == PREMIUM:
                self._closed -= self._beyond
        # 3. What is left may start beside the reservation, if it does not delay it.
        if self._reservations and self._policy.shortest_backfill:
            self._backfill()
        return Plan(
            starts=tuple(self._starts),
            preemptions=tuple(self._preemptions),
            reservations=tuple(self._reservations),
            beyond=frozenset(self._beyond),
            more=self._more,
        )

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

    def _serve(self, turn: int) -> bool:
        """One lane in order of service; whether the pass goes on after it."""
        lane = turn % BEYOND
        if turn == BEYOND and not self._beyond:
            return True
        for request in in_order(self._cluster.queue, lane, self._draft.more, self._closed):
            if request.job_id in self._started or self._comes_later(request, turn):
                continue
            if self._left and self._left.issuperset(self._kinds_of(request.needs)):
                self._closed.add(request.needs)
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
            elif turn >= self._policy.preempting or not self._preempt(request):
                self._pass_over(request)
                if not self._policy.skipping or self._leaves_rest_to_backfill(request, turn):
                    return False
        return True

    def _comes_later(self, request: Request, turn: int) -> bool:
        """Whether a request is premium that passes the cap now; all of its class is, then."""
        if turn == BEYOND:
            return request.needs not in self._beyond
        if turn != PREMIUM or not self._policy.lanes or request.job_id in self._bound:
            return False
        if request.needs not in self._beyond and self._cap.is_beyond(request.needs):
            self._beyond.add(request.needs)
            self._closed.add(request.needs)
        return request.needs in self._beyond

    def _leaves_rest_to_backfill(self, request: Request, turn: int) -> bool:
        """Once a kind of node is reserved, what may stop nobody is tried in order of length.

        Whether all kinds are. Until then, what may have others as well is served in order.
        """
        policy = self._policy
        if not policy.shortest_backfill or turn < policy.preempting:
            return False
        for reservation in self._reservations_of(request.needs):
            self._left |= reservation.kinds
        return bool(self._left) and self._left.issuperset(self._draft.free.all_kinds)

    def _kinds_of(self, needs: RequestClass) -> tuple[Kind, ...]:
        kinds = self._kinds.get(needs)
        if kinds is None:
            kinds = self._kinds[needs] = tuple(self._draft.free.kinds(needs))
        return kinds

    def _reservations_of(self, needs: RequestClass) -> list[Reservation]:
        """Reservations that a request of this class may be in the way of."""
        kinds = self._kinds_of(needs)
        return [each for each in self._reservations if each.concerns(kinds)]

    def _is_full(self) -> bool:
        started, preempted = len(self._starts), len(self._preemptions)
        policy = self._policy
        self._more = started >= policy.starts_max or preempted >= policy.preempts_max
        return self._more

    def _is_too_large(self, needs: RequestClass) -> bool:
        """Whether no node could ever hold a request that may have only one."""
        spans = self._policy.spanning and not needs.on_one_node
        if spans or needs.slots <= self._draft.free.largest(needs):
            return False
        self._full.add(needs)
        self._closed.add(needs)
        return True

    def _fit(self, request: Request) -> Seats | None:
        """Where a request fits now without delaying a reservation."""
        needs = request.needs
        if needs in self._full:
            return None
        concerned = self._reservations_of(needs)
        outlasted = [each for each in concerned if self._at + request.p90_ms > each.at]
        if not outlasted:
            seats = self._draft.free.find_seats(needs)
            if seats is None:
                self._full.add(needs)
            return seats
        if needs in self._tight:
            return None
        seats = spare_beside(outlasted).find_seats(needs)
        if seats is not None and all(
            self._draft.free.has_memory(node_id, needs) for node_id, _ in seats
        ):
            return seats
        if len(outlasted) == len(concerned):
            self._tight.add(needs)
        return None

    def _pass_over(self, request: Request) -> None:
        """A request does not start: those like it are not tried, and the first one is reserved."""
        needs = request.needs
        is_reserved = bool(self._reservations_of(needs))
        if not is_reserved or self._draft.free.find_seats(needs) is None:
            self._full.add(needs)
        if needs in self._full or self._policy.shortest_backfill:
            self._closed.add(needs)
        if self._policy.reserving and not is_reserved:
            reservation = reserve(self._draft, request)
            if reservation is not None:
                self._reservations.append(reservation)

    def _backfill(self) -> None:
        """What ends before reservations, lane by lane, the shortest expected time first."""
        tried = 0
        for turn in (*range(len(LANES)), BEYOND):
            full = self._full | self._beyond if turn == PREMIUM else self._full
            for request in shortest_first(self._cluster.queue, turn % BEYOND, full):
                needs = request.needs
                if needs in self._full or self._comes_later(request, turn):
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
        for reservation in self._reservations:
            if self._at + request.p90_ms <= reservation.at:
                reservation.take_short(self._draft.free, seats)
            else:
                reservation.take_long(request, seats)

    def _is_beyond(self, request: Request, eviction: Eviction) -> bool:
        """Whether premium would pass its cap, once its victims wait in their lanes."""
        if request.lane != PREMIUM:
            return False
        slots = max((self._cluster.running[key].slots for key in eviction.keys), default=0)
        return self._cap.is_beyond(request.needs, slots)

    def _preempt(self, request: Request) -> bool:
        """Stop later lanes for a request, where that is worth it; whether it was."""
        eviction = find_eviction(self._draft, request)
        if eviction is None or self._is_beyond(request, eviction):
            return False
        for reservation in self._reservations:
            if self._at + request.p90_ms > reservation.at:
                reserved = {node_id for node_id, _ in reservation.seats}
                if any(node_id in reserved for node_id, _ in eviction.seats):
                    return False
        self._draft.stop(eviction.keys)
        self._preemptions.append(Preemption(request, eviction.seats, eviction.keys, eviction.loss))
        self._occupy(request, eviction.seats)
        return True
