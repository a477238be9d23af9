"""What waits, by lane, request class and tenant, each list in order of service."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Set
from heapq import heapify, heappop, heappush, merge
from typing import Final, TypeAlias

from schemas.units import GpuMs, Ms
from tunery.plan.scheduling.policy import Policy
from tunery.plan.scheduling.requests import FREE, LANES, PREMIUM, STANDARD, Request, RequestClass


class Shares:
    """GPU time by tenant, in integers.

    Old use is not made smaller: new use weighs more, twice as much after each half-life and in
    proportion between. Tenants compare as if all had decayed.
    """

    __slots__ = ("_half_life_ms", "_used")

    def __init__(self, half_life_ms: Ms) -> None:
        self._half_life_ms = half_life_ms
        self._used: dict[str, int] = {}

    def charge(self, tenant: str, gpu_ms: GpuMs, at: Ms) -> None:
        """Charge a tenant for use at a moment; below zero: a refund."""
        halvings, rest = divmod(at, self._half_life_ms)
        weight = (self._half_life_ms + rest) << halvings
        self._used[tenant] = max(0, self._used.get(tenant, 0) + gpu_ms * weight)

    def level(self, tenant: str) -> int:
        """Return a tenant's use on a logarithmic scale: one step per doubling."""
        return self._used.get(tenant, 0).bit_length()


# Order of service among requests of a tenant: smaller goes first.
Rank: TypeAlias = tuple[int, Ms, str]
Length: TypeAlias = tuple[Ms, Ms, str]
# When it has waited for as long as its lane promises, its submission, its job: smaller goes first.
Due: TypeAlias = tuple[Ms, Ms, str]
# Order of service among tenants: its share, its first rank, its name. A share is the slots that a
# tenant holds, below what it has used where that counts.
Turn: TypeAlias = tuple[int, Rank, str]
HELD_BITS: Final = 32  # of a share


class ClassQueue:
    """Requests of one class in one lane: by tenant and rank, expected time, and when they are due.

    turns: the first request of each tenant, in order of service.
    """

    __slots__ = ("by_due", "by_length", "by_tenant", "turns")

    def __init__(self) -> None:
        self.by_tenant: dict[str, list[Rank]] = {}
        self.by_length: list[Length] = []
        self.by_due: list[Due] = []
        self.turns: list[Turn] = []

    def add(self, tenant: str, held: int, rank: Rank, length: Length, due: Due) -> None:
        """Add a request. held: slots that its tenant holds."""
        ranks = self.by_tenant.setdefault(tenant, [])
        before = ranks[0] if ranks else None
        insort(ranks, rank)
        insort(self.by_length, length)
        insort(self.by_due, due)
        if ranks[0] is not before:
            if before is not None:
                self._drop((held, before, tenant))
            insort(self.turns, (held, ranks[0], tenant))

    def remove(self, tenant: str, held: int, rank: Rank, length: Length, due: Due) -> None:
        """A request does not wait any more."""
        ranks = self.by_tenant[tenant]
        position = bisect_left(ranks, rank)
        del ranks[position]
        del self.by_length[bisect_left(self.by_length, length)]
        del self.by_due[bisect_left(self.by_due, due)]
        if position == 0:
            self._drop((held, rank, tenant))
            if ranks:
                insort(self.turns, (held, ranks[0], tenant))
        if not ranks:
            del self.by_tenant[tenant]

    def move(self, tenant: str, held: int, holds: int) -> None:
        """Change the number of slots that a tenant holds."""
        rank = self.by_tenant[tenant][0]
        self._drop((held, rank, tenant))
        insort(self.turns, (holds, rank, tenant))

    def _drop(self, turn: Turn) -> None:
        del self.turns[bisect_left(self.turns, turn)]


class Queue:
    """All that waits, by job id, and in the orders that the planner reads."""

    __slots__ = (
        "_aged",
        "_aged_at",
        "_classes",
        "_young",
        "held",
        "lanes",
        "policy",
        "requests",
        "shares",
    )

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.requests: dict[str, Request] = {}
        self.held: dict[str, int] = {}  # slots of tenants
        half_life_ms = policy.share_half_life_ms
        self.shares = None if half_life_ms is None else Shares(half_life_ms)
        self.lanes: list[dict[RequestClass, ClassQueue]] = [{} for _ in LANES]
        self._classes: dict[str, list[ClassQueue]] = {}  # where each tenant waits
        self._aged: set[str] = set()
        self._aged_at: Ms | None = None
        self._young: list[tuple[Ms, str]] = []  # of the last lane, by submission

    def add(self, request: Request) -> None:
        """A request waits."""
        self.requests[request.job_id] = request
        if request.lane == FREE and self.policy.lanes:
            heappush(self._young, (request.submitted_at, request.job_id))
        self._insert(request)

    def remove(self, job_id: str) -> Request:
        """A request does not wait any more."""
        request = self.requests.pop(job_id)
        self._delete(request)
        self._aged.discard(job_id)
        return request

    def count(self, tenant: str, slots: int) -> None:
        """Add to the slots that a tenant holds."""
        before = self.share(tenant)
        holds = self.held.get(tenant, 0) + slots
        if holds:
            self.held[tenant] = holds
        else:
            self.held.pop(tenant, None)
        self._move(tenant, before)

    def charge(self, tenant: str, gpu_ms: GpuMs, at: Ms) -> None:
        """Charge a tenant for use; below zero: a refund."""
        if self.shares is not None:
            before = self.share(tenant)
            self.shares.charge(tenant, gpu_ms, at)
            self._move(tenant, before)

    def share(self, tenant: str) -> int:
        """The share of a tenant, by which it has its turn."""
        if not self.policy.fair:
            return 0
        held = self.held.get(tenant, 0)
        return held if self.shares is None else (self.shares.level(tenant) << HELD_BITS) + held

    def age(self, at: Ms) -> None:
        """Free requests that have waited long enough are served with the standard lane."""
        if self._aged_at is not None and at < self._aged_at:
            self._make_young()
        self._aged_at = at
        while self._young and self._young[0][0] + self.policy.aged_ms <= at:
            submitted_at, job_id = heappop(self._young)
            request = self.requests.get(job_id)
            is_same = request is not None and request.submitted_at == submitted_at
            if request is not None and is_same and job_id not in self._aged:
                self._delete(request)
                self._aged.add(job_id)
                self._insert(request)

    def lane_of(self, request: Request) -> int:
        """The lane that a request is served with."""
        if not self.policy.lanes:
            return 0
        return STANDARD if request.job_id in self._aged else request.lane

    def rank(self, request: Request) -> Rank:
        """Place of a request among those of its tenant and lane."""
        waits = request.submitted_at + self.policy.patience * request.p50_ms
        return (waits, request.submitted_at, request.job_id)

    def due(self, request: Request) -> Due:
        """Place of a request among those that have waited for longer than their lanes promise."""
        due_at = request.waits_since + self.policy.promised_ms[request.lane]
        return (due_at, request.submitted_at, request.job_id)

    def _move(self, tenant: str, before: int) -> None:
        share = self.share(tenant)
        if share != before:
            for members in self._classes.get(tenant, ()):
                members.move(tenant, before, share)

    def _make_young(self) -> None:
        """The clock was set back: who is old is found out anew."""
        for job_id in sorted(self._aged):
            request = self.requests[job_id]
            self._delete(request)
            self._aged.discard(job_id)
            self._insert(request)
            heappush(self._young, (request.submitted_at, job_id))

    def _insert(self, request: Request) -> None:
        lane, tenant = self.lanes[self.lane_of(request)], self._tenant(request)
        members = lane.get(request.needs)
        if members is None:
            members = lane[request.needs] = ClassQueue()
        if tenant not in members.by_tenant:
            self._classes.setdefault(tenant, []).append(members)
        share, rank, due = self.share(tenant), self.rank(request), self.due(request)
        members.add(tenant, share, rank, length(request), due)

    def _delete(self, request: Request) -> None:
        lane, tenant = self.lanes[self.lane_of(request)], self._tenant(request)
        members = lane[request.needs]
        share, rank, due = self.share(tenant), self.rank(request), self.due(request)
        members.remove(tenant, share, rank, length(request), due)
        if tenant not in members.by_tenant:
            left = [each for each in self._classes[tenant] if each is not members]
            if left:
                self._classes[tenant] = left
            else:
                del self._classes[tenant]
        if not members.by_length:
            del lane[request.needs]

    def _tenant(self, request: Request) -> str:
        return request.tenant if self.policy.fair else ""


def length(request: Request) -> Length:
    """Place of a request among those that may start before a reservation."""
    return (request.p50_ms, request.submitted_at, request.job_id)


def in_order(
    queue: Queue, lane: int, more: Mapping[str, int], closed: Set[RequestClass]
) -> Iterator[Request]:
    """Requests of a lane in order of service.

    The tenant with the fewest slots goes first, then its own rank. `more` (slots that tenants have
    got in this pass) and `closed` (classes that are passed over) may grow between two requests.
    """
    # An entry is the turn of a tenant, its class, which of the tenant's requests it is, and where
    # the turn stands in its class; None: it stands there no more.
    heap: list[tuple[Turn, int, int, int | None]] = []
    classes = [(needs, each) for needs, each in queue.lanes[lane].items() if needs not in closed]
    heap = [(each.turns[0], number, 0, 0) for number, (_, each) in enumerate(classes)]
    heapify(heap)
    while heap:
        (held, rank, tenant), number, index, position = heappop(heap)
        needs, members = classes[number]
        if needs in closed:
            continue
        if position is not None and position + 1 < len(members.turns):
            heappush(heap, (members.turns[position + 1], number, 0, position + 1))
        holds = queue.share(tenant) + more.get(tenant, 0) if queue.policy.fair else 0
        if holds != held:
            heappush(heap, ((holds, rank, tenant), number, index, None))
            continue
        yield queue.requests[rank[2]]
        ranks = members.by_tenant[tenant]
        if index + 1 < len(ranks):
            holds = queue.share(tenant) + more.get(tenant, 0) if queue.policy.fair else 0
            heappush(heap, ((holds, ranks[index + 1], tenant), number, index + 1, None))


def shortest_first(queue: Queue, lane: int, closed: Set[RequestClass]) -> Iterator[Request]:
    """Requests of a lane in order of expected time, without those of closed classes."""
    lists = (each.by_length for needs, each in queue.lanes[lane].items() if needs not in closed)
    for _, _, job_id in merge(*lists):
        yield queue.requests[job_id]


def overdue(queue: Queue, at: Ms, closed: Set[RequestClass]) -> Iterator[Request]:
    """Requests past the promise of their lane, the first one due first; premium is not among them.

    `closed` (classes that are passed over) may grow between two requests.
    """
    classes = [
        (needs, each.by_due)
        for lane in queue.lanes[PREMIUM + 1 :]
        for needs, each in lane.items()
        if each.by_due[0][0] < at
    ]
    heap = [(by_due[0], number, 0) for number, (_, by_due) in enumerate(classes)]
    heapify(heap)
    while heap:
        (due_at, _, job_id), number, index = heappop(heap)
        needs, by_due = classes[number]
        if due_at >= at:
            return
        if needs in closed:
            continue
        if index + 1 < len(by_due):
            heappush(heap, (by_due[index + 1], number, index + 1))
        yield queue.requests[job_id]
