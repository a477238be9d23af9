"""A cluster with gangs and domains, whose jobs end exactly when they are expected to."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from schemas.training import Device
from tests.simulation.scheduling.rules import Judge, Rule
from tunery.plan.scheduling.plan import BEYOND, Plan, Start, plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.queue import Rank
from tunery.plan.scheduling.requests import PlanNode, Request, RequestClass, Running, Seats, granted
from tunery.plan.scheduling.reservation import Reservation

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
GB: Final = 1_000_000_000
TENANTS: Final = ("acme", "globex", "initech")
NOTICE_MS: Final = 2 * MINUTE
ROUNDS_MAX: Final = 2_000


@dataclass(frozen=True)
class Want:
    """A request, in steps of what makes a difference."""

    lane: int
    tenant: int
    slots: int
    hours: int


@dataclass
class Promise:
    """The first moment that was reserved for a request."""

    job_id: str
    at: int


class PlannerWorld:
    """Nodes of one kind in two domains; leases end when they should, or were told to."""

    def __init__(self, judge: Judge, sizes: list[int], tenants: int = 3) -> None:
        self.judge, self.tenants = judge, tenants
        self.nodes = [
            PlanNode(f"n{number}", slots, "cuda", 24 * GB, ("east", "west")[number % 2])
            for number, slots in enumerate(sizes)
        ]
        self.largest = max(sizes)
        self.state = PlanningState(self.nodes, PRODUCT)
        self.at, self.count = 0, 0
        self.promise: Promise | None = None
        self.preempted: dict[str, int] = {}
        self.plans: list[Plan] = []

    def submit(self, want: Want) -> None:
        """A request comes; the planner looks at once."""
        self.count += 1
        device: Device = "cuda"
        self.state.queue.add(
            Request(
                job_id=f"j{self.count:03d}",
                tenant=TENANTS[want.tenant % self.tenants],
                lane=want.lane,
                needs=RequestClass(want.slots, device, GB),
                submitted_at=self.at,
                p50_ms=want.hours * HOUR,
                p90_ms=want.hours * HOUR,
            )
        )
        self.plan()

    def pass_time(self, ms: int) -> None:
        """Leases end in order on the way; each time the planner looks."""
        until = self.at + ms
        while (end := self._next_end()) is not None and end[0] <= until:
            self.at = end[0]
            for key, lease in sorted(self.state.running.items()):
                if _ends_at(lease) <= self.at:
                    self._end(key)
            self.plan()
        self.at = until
        self.plan()

    def save_all(self) -> None:
        """Write a checkpoint of each lease that was not told to end."""
        for key, lease in sorted(self.state.running.items()):
            if lease.ends_by is None:
                self.state.save(key, self.at)

    def calm_down(self) -> None:
        """Nothing new comes: all that can be placed starts."""
        for _ in range(ROUNDS_MAX):
            end = self._next_end()
            if end is None:
                break
            self.pass_time(end[0] - self.at)
        total = self.state.capacity.total(RequestClass(1, "cuda", GB))
        largest = max(node.slots for node in self.nodes)
        left = [
            request
            for request in self.state.queue.requests.values()
            if request.needs.slots <= (total if self._is_even() else largest)
        ]
        self.judge.check(Rule.STARVATION, not left, left)

    def plan(self) -> None:
        """One pass after the other, until nothing follows."""
        for _ in range(100):
            self.state.queue.age(self.at)
            planned = plan(self.state, self.at)
            self._check(planned)
            self.plans.append(planned)
            self._apply(planned)
            if not planned.more and not planned.preemptions:
                return

    # --- what happens -----------------------------------------------------------------------------

    def _next_end(self) -> tuple[int, str] | None:
        ends = ((_ends_at(lease), key) for key, lease in self.state.running.items())
        return min(ends, default=None)

    def _end(self, key: str) -> None:
        """End leases: preempted requests wait again in their place; all other work is done."""
        lease = self.state.end(key)
        if lease.ends_by is not None:
            self.preempted[key] = self.preempted.get(key, 0) + 1
            self.state.queue.add(
                Request(
                    job_id=key,
                    tenant=lease.tenant,
                    lane=lease.lane,
                    needs=RequestClass(lease.slots, "cuda", GB),
                    submitted_at=lease.submitted_at,
                    queued_at=self.at,
                    p50_ms=lease.p50_ms,
                    p90_ms=lease.p90_ms,
                    preemptions=self.preempted[key],
                )
            )

    def _apply(self, planned: Plan) -> None:
        for start in planned.starts:
            self.state.leave_queue(start.request.job_id)
            lease = granted(start.request, start.seats, self.at, start.request.job_id)
            self.state.start(replace(lease, started_at=self.at, saved_at=self.at))
        for preemption in planned.preemptions:
            self.state.bind(preemption.request.job_id, preemption.seats)
            for key in preemption.keys:
                self.state.notify(key, self.at + NOTICE_MS)

    # --- what must hold of every pass -------------------------------------------------------------

    def _check(self, planned: Plan) -> None:
        free = self._free_after(planned)
        self.judge.check(Rule.CAPACITY, min(free.values()) >= 0, f"{free} after {planned}")
        for start in planned.starts:
            held = sum(slots for _, slots in start.seats)
            nodes = {node_id for node_id, _ in start.seats}
            whole = held == start.request.needs.slots and len(nodes) == len(start.seats)
            self.judge.check(Rule.GANG, whole, start)
        self._check_victims(planned, free)
        self._check_head(planned)
        self._check_kept(planned)
        self._check_idle(planned, free)
        self._check_cap(planned, free)
        self._check_same(planned)

    def _free_after(self, planned: Plan) -> dict[str, int]:
        free = {node.node_id: node.slots for node in self.nodes}
        for lease in self.state.running.values():
            _take(free, lease.seats)
        for start in planned.starts:
            _take(free, start.seats)
        return free

    def _check_victims(self, planned: Plan, free: Mapping[str, int]) -> None:
        claimed = dict.fromkeys(free, 0)
        started = {start.request.job_id for start in planned.starts}
        for preemption in planned.preemptions:
            _give(claimed, preemption.seats)
        for job_id, seats in self.state.bound.items():
            if job_id not in started:
                _give(claimed, seats)
        for preemption in planned.preemptions:
            victims = [self.state.running[key] for key in preemption.keys]
            for spared in victims:
                request = preemption.request
                is_later = spared.lane > request.lane or (
                    self._is_late(request) and _is_behind(spared, request)
                )
                self.judge.check(Rule.VICTIM, is_later, f"{spared} for {request}")
                own = dict.fromkeys(free, 0)
                for lease in victims:
                    _give(own, () if lease is spared else lease.seats)
                enough = all(
                    max(0, free[node_id] - claimed[node_id] + slots) + own[node_id] >= slots
                    for node_id, slots in preemption.seats
                )
                self.judge.check(Rule.VICTIM, not enough, f"{spared} is superfluous: {preemption}")

    def _check_head(self, planned: Plan) -> None:
        """Its seats will be free by then; and no later pass puts it off without a cause."""
        kept, self.promise = self.promise, None
        for reserved in planned.reservations:
            self._check_seats(planned, reserved)
        if len(planned.reservations) != 1 or planned.reservations[0].kept:
            return
        (reserved,) = planned.reservations
        self.promise = Promise(reserved.request.job_id, reserved.at)
        is_alone = self.tenants == 1 and not self.preempted and not self.state.bound
        if kept is None or kept.job_id != reserved.request.job_id or not is_alone:
            return
        last = {start.request.job_id for start in self._starts_beyond(planned)}
        if reserved.request.lane == 0 and reserved.request.needs in planned.beyond:
            last.add(reserved.request.job_id)
        kept_order = self._order_of(reserved.request, last)
        begun = [start.request for start in planned.starts]
        jumped = [request for request in begun if self._order_of(request, last) < kept_order]
        if not jumped and not planned.preemptions:
            delayed = f"{kept.job_id} is put off from {kept.at} to {reserved.at}"
            self.judge.check(Rule.HEAD, reserved.at <= kept.at, delayed)

    def _check_kept(self, planned: Plan) -> None:
        """The first late request has nodes, or leases make way for it, unless others have them."""
        begun = {start.request.job_id for start in planned.starts}
        left = [each for each in self.state.queue.requests.values() if each.job_id not in begun]
        late = [each for each in left if self._is_late(each)]
        if not late or planned.more or any(each.lane == 0 for each in left):
            return
        first = min(late, key=self.state.queue.due)
        own = {
            *(each.request.job_id for each in planned.reservations),
            *(each.request.job_id for each in planned.preemptions),
            *self.state.bound,
        }
        whole = sum(node.slots for node in self.nodes if node.slots == self.largest)
        if first.needs.slots <= whole and not self.state.bound.keys() - {first.job_id}:
            self.judge.check(Rule.KEPT, first.job_id in own, f"{first} at {self.at}: {own}")

    def _is_late(self, request: Request) -> bool:
        """Whether a request for whole nodes has waited for too long."""
        is_due = request.lane > 0 and self.state.queue.due(request)[0] < self.at
        return is_due and request.needs.slots >= self.largest

    def _check_seats(self, planned: Plan, reserved: Reservation) -> None:
        """Reserved slots will be free in time, but for leases that a kept reservation stops."""
        late = reserved.request if reserved.kept else None
        running = [*self.state.running.values()]
        begun = [(start.request, start.seats) for start in planned.starts]
        ends = {
            preempted: self.at + NOTICE_MS
            for preemption in planned.preemptions
            for preempted in preemption.keys
        }
        at_start = {node.node_id: node.slots for node in self.nodes}
        for lease in running:
            stays = late is None or not _is_behind(lease, late)
            if stays and ends.get(lease.key, _ends_at(lease)) > reserved.at:
                _take(at_start, lease.seats)
        for request, seats in begun:
            stays = late is None or not _is_behind(request, late)
            if stays and self.at + request.p90_ms > reserved.at:
                _take(at_start, seats)
        for node_id, slots in reserved.seats:
            text = f"{reserved.request.job_id} at {reserved.at}: {at_start[node_id]} of {slots}"
            self.judge.check(Rule.HEAD, at_start[node_id] >= slots, text)

    def _order_of(self, request: Request, last: Set[str]) -> tuple[int, Rank]:
        """An old request has moved to an earlier lane, what is late comes after premium; `last`:
        those after all lanes.
        """
        queue = self.state.queue
        if self._is_late(request):
            return 1, queue.due(request)
        turn = BEYOND if request.job_id in last else queue.lane_of(request)
        return 2 * turn, queue.rank(request)

    def _check_idle(self, planned: Plan, free: Mapping[str, int]) -> None:
        """Nothing on one node, when no reservation and no preemption keeps slots."""
        if planned.reservations or planned.preemptions or self.state.bound:
            return
        started = {start.request.job_id for start in planned.starts}
        largest = max(node.slots for node in self.nodes)
        for job_id, request in self.state.queue.requests.items():
            if job_id not in started and request.needs.slots <= largest:
                fits = max(free.values()) >= request.needs.slots
                self.judge.check(Rule.IDLE, not fits, f"{request} beside {free}")

    def _check_cap(self, planned: Plan, free: Mapping[str, int]) -> None:
        """Premium beyond its cap preempts nothing, and gets only slots that nothing else fits."""
        started = {start.request.job_id for start in planned.starts}
        others = self._others()
        late = dict(free)
        for start in self._starts_beyond(planned):
            _give(late, start.seats)
        is_quiet = not planned.reservations and not planned.preemptions
        if is_quiet and not self.state.bound and late != free:
            for each in others:
                fits = max(late.values()) >= each.needs.slots and each.job_id not in started
                self.judge.check(Rule.CAP, not fits, f"{each} beside premium: {planned.starts}")
        for preemption in planned.preemptions:
            victims = [self.state.running[key] for key in preemption.keys]
            is_premium = preemption.request.lane == 0
            is_beyond = is_premium and self._is_beyond(self._premium(), [*others, *victims])
            self.judge.check(Rule.CAP, not is_beyond, preemption)

    def _starts_beyond(self, planned: Plan) -> list[Start]:
        """Starts of premium when it had its cap, by what it held before this pass and got in it."""
        held, others = self._premium(), self._others()
        beyond: list[Start] = []
        for start in planned.starts:
            if start.request.lane == 0 and start.request.job_id not in self.state.bound:
                if self._is_beyond(held, others):
                    beyond.append(start)
                held += start.request.needs.slots
        return beyond

    def _premium(self) -> int:
        """Slots that premium holds, or that others were stopped for it to have."""
        leases = [lease.slots for lease in self.state.running.values() if lease.lane == 0]
        bound = [self.state.queue.requests[job_id] for job_id in self.state.bound]
        return sum(leases) + sum(each.needs.slots for each in bound if each.lane == 0)

    def _others(self) -> list[Request]:
        """Requests in other lanes that fit the cluster."""
        total = sum(node.slots for node in self.nodes)
        requests = self.state.queue.requests.values()
        return [each for each in requests if each.lane and each.needs.slots <= total]

    def _is_beyond(self, held: int, others: Sequence[Request | Running]) -> bool:
        """Whether premium leaves too few slots for the largest other request. held: by premium."""
        total = sum(node.slots for node in self.nodes)
        slots = (each.slots if isinstance(each, Running) else each.needs.slots for each in others)
        gang = max(slots, default=0)
        return gang > 0 and held >= max(total - gang, -(-total // 2))

    def _check_same(self, planned: Plan) -> None:
        """The plan does not depend on the order in which nodes, leases and requests came."""
        twin = PlanningState(reversed(self.nodes), PRODUCT)
        for key in reversed([*self.state.running]):
            twin.start(self.state.running[key])
        for job_id in reversed([*self.state.queue.requests]):
            twin.queue.add(self.state.queue.requests[job_id])
        for job_id in reversed([*self.state.bound]):
            twin.bind(job_id, self.state.bound[job_id])
        twin.queue.age(self.at)
        again = plan(twin, self.at)
        same = (again.starts, again.preemptions) == (planned.starts, planned.preemptions)
        self.judge.check(Rule.SAME, same, f"{planned.starts} or {again.starts}")

    def _is_even(self) -> bool:
        """Whether every node has as many slots, so that gangs may have them all."""
        return len({node.slots for node in self.nodes}) == 1


def _is_behind(each: Request | Running, late: Request) -> bool:
    """Whether something is of a later lane than a late request, or was submitted later."""
    return (each.lane, each.submitted_at) > (late.lane, late.submitted_at)


def _ends_at(lease: Running) -> int:
    began = lease.granted_at if lease.started_at is None else lease.started_at
    return began + lease.p90_ms if lease.ends_by is None else lease.ends_by


def _give(slots_of: dict[str, int], seats: Seats) -> None:
    for node_id, slots in seats:
        slots_of[node_id] += slots


def _take(free: dict[str, int], seats: Seats) -> None:
    for node_id, slots in seats:
        free[node_id] -= slots
