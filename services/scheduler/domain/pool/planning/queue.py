"""What waits, by lane, request class and tenant, each list in order of service."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Set
from heapq import heapify, heappop, heappush, heapreplace, merge
from typing import TypeAlias

from schemas.units import Ms
from services.scheduler.domain.pool.planning.policy import Policy
from services.scheduler.domain.pool.planning.requests import LANES, Request, RequestClass

# Order of service among requests of a tenant: smaller goes first.
Rank: TypeAlias = tuple[int, Ms, str]
Length: TypeAlias = tuple[Ms, Ms, str]


STANDARD, FREE = LANES.index("standard"), LANES.index("free")


class ClassQueue:
    """Requests of one class in one lane: by tenant and rank, and by expected time."""

    __slots__ = ("by_length", "by_tenant")

    def __init__(self) -> None:
        self.by_tenant: dict[str, list[Rank]] = {}
        self.by_length: list[Length] = []


class Queue:
    """All that waits, by job id, and in the orders that the planner reads."""

    __slots__ = ("_aged", "_young", "lanes", "policy", "requests")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.requests: dict[str, Request] = {}
        self._aged: set[str] = set()
        self._young: list[tuple[Ms, str]] = []  # of the last lane, by submission
        self.lanes: list[dict[RequestClass, ClassQueue]] = [{} for _ in LANES]

    def add(self, request: Request) -> None:
        """A request waits."""
        self.requests[request.job_id] = request
        if request.lane == FREE and self.policy.lanes:
            heappush(self._young, (request.submitted_at, request.job_id))
        self._insert(request)

    def _insert(self, request: Request) -> None:
        lane = self.lanes[self._lane(request)]
        members = lane.setdefault(request.needs, ClassQueue())
        insort(members.by_tenant.setdefault(self._tenant(request), []), self.rank(request))
        insort(members.by_length, length(request))

    def remove(self, job_id: str) -> Request:
        """A request does not wait any more."""
        request = self.requests.pop(job_id)
        self._delete(request)
        self._aged.discard(job_id)
        return request

    def age(self, at: Ms) -> None:
        """Free requests that have waited long enough are served with the standard lane."""
        while self._young and self._young[0][0] + self.policy.aged_ms <= at:
            _, job_id = heappop(self._young)
            request = self.requests.get(job_id)
            if request is not None and job_id not in self._aged:
                self._delete(request)
                self._aged.add(job_id)
                self._insert(request)

    def _delete(self, request: Request) -> None:
        lane, tenant = self.lanes[self._lane(request)], self._tenant(request)
        members = lane[request.needs]
        ranks = members.by_tenant[tenant]
        del ranks[bisect_left(ranks, self.rank(request))]
        del members.by_length[bisect_left(members.by_length, length(request))]
        if not ranks:
            del members.by_tenant[tenant]
        if not members.by_length:
            del lane[request.needs]

    def rank(self, request: Request) -> Rank:
        """Place of a request among those of its tenant and lane."""
        waits = request.submitted_at + self.policy.patience * request.p50_ms
        return (waits, request.submitted_at, request.job_id)

    def _lane(self, request: Request) -> int:
        if not self.policy.lanes:
            return 0
        return STANDARD if request.job_id in self._aged else request.lane

    def _tenant(self, request: Request) -> str:
        return request.tenant if self.policy.fair else ""


def length(request: Request) -> Length:
    """Place of a request among those that may start before a reservation."""
    return (request.p50_ms, request.submitted_at, request.job_id)


def in_order(
    queue: Queue, lane: int, held: Mapping[str, int], closed: Set[RequestClass]
) -> Iterator[Request]:
    """Requests of a lane in order of service.

    The tenant with the fewest slots goes first, then its own rank. `held` (slots of tenants) and
    `closed` (classes that are passed over) may change between two requests.
    """
    heads: dict[str, list[tuple[Rank, RequestClass, int]]] = {}
    for needs, members in queue.lanes[lane].items():
        if needs not in closed:
            for tenant, ranks in members.by_tenant.items():
                heads.setdefault(tenant, []).append((ranks[0], needs, 0))
    order = []
    for tenant, heap in heads.items():
        heapify(heap)
        order.append((held.get(tenant, 0), heap[0][0], tenant))
    heapify(order)
    while order:
        share, rank, tenant = heappop(order)
        heap = heads[tenant]
        while heap and heap[0][1] in closed:
            heappop(heap)
        if not heap:
            continue
        if (held.get(tenant, 0), heap[0][0]) != (share, rank):
            heappush(order, (held.get(tenant, 0), heap[0][0], tenant))
            continue
        rank, needs, index = heap[0]
        yield queue.requests[rank[2]]
        ranks = queue.lanes[lane][needs].by_tenant[tenant]
        if index + 1 < len(ranks):
            heapreplace(heap, (ranks[index + 1], needs, index + 1))
        else:
            heappop(heap)
        if heap:
            heappush(order, (held.get(tenant, 0), heap[0][0], tenant))


def shortest_first(queue: Queue, lane: int, closed: Set[RequestClass]) -> Iterator[Request]:
    """Requests of a lane in order of expected time, without those of closed classes."""
    lists = (each.by_length for needs, each in queue.lanes[lane].items() if needs not in closed)
    for _, _, job_id in merge(*lists):
        yield queue.requests[job_id]
