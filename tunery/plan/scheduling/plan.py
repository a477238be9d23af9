"""One pass over the queue: what starts now, who is stopped for whom, what is held for the first."""

from dataclasses import dataclass

from schemas.units import Ms
from tunery.plan.scheduling.capacity import Capacity
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.late import (
    are_being_freed,
    can_be_freed,
    first_nodes,
    is_urgent,
    stoppable,
    will_make_way,
)
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.premium_cap import PremiumCap
from tunery.plan.scheduling.queue import in_order, overdue, shortest_first
from tunery.plan.scheduling.requests import LANES, PREMIUM, Kind, Request, RequestClass, Seats
from tunery.plan.scheduling.reservation import Reservation, reserve, spare_beside
from tunery.plan.scheduling.victims import Eviction, find_eviction

BEYOND = len(LANES)  # the turn of what is beyond the cap of premium: after all lanes


@dataclass(frozen=True, slots=True)
class Start:
    """Request that starts now, with its slots."""

    request: Request
    seats: Seats


@dataclass(frozen=True, slots=True)
class Preemption:
    """Leases that have to end for a request."""

    request: Request  # request that they make way for
    seats: Seats  # slots that it will have then; nothing else may start there
    keys: tuple[str, ...]  # keys of the leases
    loss: int  # slots × time that they lose


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions of one pass, in order."""

    starts: tuple[Start, ...] = ()  # requests that start
    # leases that are stopped, with the requests that they make way for
    preemptions: tuple[Preemption, ...] = ()
    # places and times for requests that do not fit now: late requests for whole nodes, the first
    # request in order of service, and the first one of those that wait for other kinds of nodes
    # alone
    reservations: tuple[Reservation, ...] = ()
    # classes of premium requests that came after all lanes, because premium had its cap
    beyond: frozenset[RequestClass] = frozenset()
    more: bool = False  # the pass reached its limits, so that another one has to follow


def plan(cluster: PlanningState, at: Ms) -> Plan:
    """Decide what to do now. The caller changes the state, by the facts that follow."""
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
        # Nor beyond the reservations of these jobs: what is shorter may be in the way of fewer.
        self._tight: set[tuple[RequestClass, tuple[str, ...]]] = set()
        self._bound: set[str] = set()  # jobs that wait for seats of their own
        self._reservations: list[Reservation] = []
        self._reserved: set[str] = set()  # nodes of these
        self._claimed: dict[str, Seats] = {}  # seats of late requests, which are not all freed yet
        self._kept: list[RequestClass] = []  # of late requests that have nodes
        self._spare: dict[tuple[str, ...], Capacity] = {}  # beside reservations, by their jobs
        self._kinds: dict[RequestClass, tuple[Kind, ...]] = {}
        self._left: set[Kind] = set()  # of nodes that are left to backfill
        self._starts: list[Start] = []
        self._served: set[str] = set()  # jobs that start, that others stop for, or that are kept
        self._preemptions: list[Preemption] = []
        self._more = False

    def run(self) -> Plan:
        # 1. Slots that leases were asked to free belong to the request they were freed for.
        self._start_bound()
        # 2. Lanes in order: an earlier one never waits for the reservation of a later one. What is
        #    beyond the cap of premium comes last.
        for turn in (*range(len(LANES)), BEYOND):
            if not self._serve(turn):
                break
            if turn == PREMIUM:
                self._closed -= self._beyond
                # What has waited too long comes before the lanes that it has waited for.
                if not self._keep():
                    break
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
            elif not are_being_freed(self._draft, seats):
                self._claimed[job_id] = seats
            else:
                self._bound.add(job_id)
                self._occupy(request, seats)

    def _serve(self, turn: int) -> bool:
        """One lane in order of service; whether the pass continues after it."""
        lane = turn % BEYOND
        if turn == BEYOND and not self._beyond:
            return True
        for request in in_order(self._cluster.queue, lane, self._draft.more, self._closed):
            if request.job_id in self._served or self._comes_later(request, turn):
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

    def _keep(self) -> bool:
        """Serve late requests for whole nodes, the first one due first; whether the pass continues.

        Who is due is known from the queue alone, so that each plan keeps nodes for the same ones
        until they start. Only premium is served before them.
        """
        closed: set[RequestClass] = set()
        if not self._policy.kept_max or not self._policy.lanes:
            return True
        for request in overdue(self._cluster.queue, self._at, closed):
            needs = request.needs
            if request.job_id in self._served or request.job_id in self._bound:
                continue
            if self._is_full():
                return False
            if (
                needs.slots < self._draft.free.largest(needs)
                or self._is_too_large(needs)
                or self._keeps_enough(needs)
            ):
                closed.add(needs)
                continue
            # 1. It may fit, or stop later lanes, as any other request.
            seats = self._fit(request)
            if seats is not None:
                self._start(request, seats)
                continue
            # 2. Nodes on which leases were stopped for it already stay its own.
            claimed = self._claimed.get(request.job_id)
            if claimed is not None and can_be_freed(self._draft, request, claimed):
                self._stop_for(request, claimed)
                self._claim(request, claimed)
                continue
            if request.lane < self._policy.preempting and self._preempt(request):
                continue
            # 3. Otherwise leases make way, as soon as those that do not have ended.
            if not self._free_nodes(request):
                closed.add(needs)
        return True

    def _keeps_enough(self, needs: RequestClass) -> bool:
        """Return whether the limit of late requests that reserve nodes of this kind is reached."""
        kinds = {*self._kinds_of(needs)}
        alike = [each for each in self._kept if not kinds.isdisjoint(self._kinds_of(each))]
        return len(alike) >= self._policy.kept_max

    def _free_nodes(self, request: Request) -> bool:
        """Stop leases for a late request, or reserve the nodes where this will be possible first.

        Whether there are such nodes.
        """
        moment = first_nodes(self._draft, request, self._reserved)
        if moment is None:
            return False
        at, seats = moment
        if at <= self._at and self._stop_for(request, seats):
            self._claim(request, seats)
            return True
        self._kept.append(request.needs)
        self._served.add(request.job_id)
        spare = self._draft.free.copy()
        for node_id, _ in seats:
            spare.limit(node_id, 0)
        kinds = frozenset(self._draft.free.kinds(request.needs))
        self._reservations.append(Reservation(request, at, seats, spare, kinds, kept=True))
        self._reserved.update(node_id for node_id, _ in seats)
        return True

    def _stop_for(self, request: Request, seats: Seats) -> bool:
        """Stop what loses little now, of leases that make way; whether there is any."""
        victims = stoppable(self._draft, request, seats)
        if victims:
            keys = tuple(sorted(victim.key for victim in victims))
            loss = sum(victim.loss for victim in victims)
            self._draft.stop(keys)
            self._preemptions.append(Preemption(request, seats, keys, loss))
        return bool(victims)

    def _claim(self, request: Request, seats: Seats) -> None:
        """Keep these nodes from all other requests until this one starts."""
        self._occupy(request, seats)
        self._draft.claimed.update(node_id for node_id, _ in seats)
        self._bound.add(request.job_id)
        self._kept.append(request.needs)
        self._served.add(request.job_id)

    def _comes_later(self, request: Request, turn: int) -> bool:
        """Return whether a request is premium beyond the cap; then all of its class is."""
        if turn == BEYOND:
            return request.needs not in self._beyond
        if turn != PREMIUM or not self._policy.lanes or request.job_id in self._bound:
            return False
        if request.needs not in self._beyond and self._cap.is_beyond(request.needs):
            self._beyond.add(request.needs)
            self._closed.add(request.needs)
        return request.needs in self._beyond

    def _leaves_rest_to_backfill(self, request: Request, turn: int) -> bool:
        """Return whether all kinds of nodes are reserved, so that the rest is only backfill.

        Requests that may not preempt are then tried in order of length. Until then, requests that
        fit another kind of node are served in their order.
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
        """Return whether no node could ever hold a request that may have only one."""
        spans = self._policy.spanning and not needs.on_one_node
        if spans or needs.slots <= self._draft.free.largest(needs):
            return False
        self._full.add(needs)
        self._closed.add(needs)
        return True

    def _fit(self, request: Request) -> Seats | None:
        """Return seats where a request fits now without delaying a reservation; None: nowhere."""
        needs = request.needs
        if needs in self._full:
            return None
        concerned = self._reservations_of(needs)
        outlasted = [each for each in concerned if self._is_in_its_way(request, each)]
        if not outlasted:
            seats = self._draft.free.find_seats(needs)
            if seats is None:
                self._full.add(needs)
            return seats
        jobs = tuple(each.request.job_id for each in outlasted)
        if (needs, jobs) in self._tight:
            return None
        spare = self._spare.get(jobs)
        if spare is None:
            spare = self._spare[jobs] = spare_beside(outlasted)
        seats = spare.find_seats(needs)
        if seats is not None and all(
            self._draft.free.has_memory(node_id, needs) for node_id, _ in seats
        ):
            return seats
        self._tight.add((needs, jobs))
        return None

    def _is_in_its_way(self, request: Request, reservation: Reservation) -> bool:
        """Return whether a request would hold its seats beyond the moment of a reservation.

        What makes way for a late request may: it is stopped then. Once the late one has waited for
        twice as long as it should, nothing may: leases that save nothing would be in its way for
        ever.
        """
        if self._at + request.p90_ms <= reservation.at:
            return False
        late, policy = reservation.request, self._policy
        if not reservation.kept or reservation.at <= self._at:
            return True
        return is_urgent(late, self._at, policy) or not will_make_way(request, late, policy)

    def _pass_over(self, request: Request) -> None:
        """A request does not start: those like it are not tried, and the first one is reserved."""
        needs = request.needs
        concerned = self._reservations_of(needs)
        if not concerned or self._draft.free.find_seats(needs) is None:
            self._full.add(needs)
        if needs in self._full or self._policy.shortest_backfill:
            self._closed.add(needs)
        if self._policy.reserving and all(each.kept for each in concerned):
            reservation = reserve(self._draft, request, self._reserved)
            if reservation is not None:
                self._reservations.append(reservation)
                self._reserved.update(node_id for node_id, _ in reservation.seats)

    def _backfill(self) -> None:
        """Start what ends before reservations, lane by lane, the shortest expected time first."""
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
                if request.job_id in self._served or request.job_id in self._bound:
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
        self._served.add(request.job_id)
        self._occupy(request, seats)

    def _occupy(self, request: Request, seats: Seats) -> None:
        """Take seats for the rest of this pass, also from the reservations."""
        self._draft.occupy(request, seats)
        self._spare.clear()
        for reservation in self._reservations:
            if self._is_in_its_way(request, reservation):
                reservation.take_long(request, seats)
            else:
                reservation.take_short(self._draft.free, seats)

    def _is_beyond(self, request: Request, eviction: Eviction) -> bool:
        """Return whether premium would pass its cap, once its victims wait in their lanes."""
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
            is_moved = reservation.kept and request.lane < reservation.request.lane
            if not is_moved and self._is_in_its_way(request, reservation):
                reserved = {node_id for node_id, _ in reservation.seats}
                if any(node_id in reserved for node_id, _ in eviction.seats):
                    return False
        self._draft.stop(eviction.keys)
        self._served.add(request.job_id)
        self._preemptions.append(Preemption(request, eviction.seats, eviction.keys, eviction.loss))
        self._occupy(request, eviction.seats)
        return True
