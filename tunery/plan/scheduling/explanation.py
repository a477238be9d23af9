"""Position, reason and expected start of each waiting request, from what the planner does now.

Readers compute it from the queue whenever somebody asks; nothing of it is on a log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from schemas.envelope import Reason
from schemas.reasons import waiting
from schemas.training import Device
from schemas.units import Ms
from tunery.plan.scheduling.capacity import Capacity, most_slots, suits
from tunery.plan.scheduling.forecast import QUANTILES, forecast
from tunery.plan.scheduling.plan import Plan, plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.queue import in_order
from tunery.plan.scheduling.requests import (
    LANES,
    PREMIUM,
    PlanNode,
    Request,
    RequestClass,
    demands,
    tolerating,
)

# Until leases that have to end for another job have freed their slots: notice, checkpoint, end.
FREED_MS_MAX: Final[Ms] = 180_000
NAMES_SAID_MAX: Final = 16
BACK_OFF_MS_MAX: Final[Ms] = 900_000  # the longest after which a job may meet a node again


@dataclass(frozen=True, slots=True)
class Explanation:
    """Reason why a request waits, and until when."""

    request: Request  # the waiting request
    lane: int  # index in `LANES` of the lane that serves it; an aged request moves up
    position: int  # position in that lane, from 1
    # number of requests before it for slots of its kind, in its lane and in earlier ones
    ahead: int
    reason: Reason  # why it waits
    earliest: Ms | None  # expected start if everything lasts as long as expected
    # expected start if everything lasts as long as it may. Both are None where it fits on no node
    # that there is, so that it waits for a person.
    latest: Ms | None


@dataclass(frozen=True, slots=True)
class ExplainedQueue:
    """Explanations by job in order of service, and the decisions that the planner would make
    now.
    """

    explanations: Mapping[str, Explanation]
    planned: Plan


def explain(cluster: PlanningState, requests: Iterable[Request], at: Ms) -> ExplainedQueue:
    """Explain requests that wait. They are added to the cluster, whose queue is empty.

    Seats that were freed for some of them have been bound before.
    """
    oversized: list[Request] = []
    for request in requests:
        if request.needs.slots > cluster.capacity.most(request.needs):
            oversized.append(request)
        else:
            cluster.queue.add(request)
    cluster.bound = cluster.claims()
    cluster.queue.age(at)
    planned = plan(cluster, at)
    lanes = [list(_serve(cluster, lane)) for lane in range(len(LANES))]
    oversized.sort(key=lambda request: (request.submitted_at, request.job_id))
    situation = _Situation(cluster, planned)
    order = [
        (lane, request)
        for lane, served in enumerate(lanes)
        for request in (*served, *(each for each in oversized if each.lane == lane))
    ]
    order.sort(key=lambda entry: situation.is_beyond_cap(entry[1]))
    later = [_without_back_off(each) for _, each in order if each.job_id in cluster.queue.requests]
    forecasts = _forecasts(cluster, planned, later, at)
    explanations: dict[str, Explanation] = {}
    ahead: dict[Device, int] = {}
    positions = [0] * len(LANES)
    for lane, request in order:
        positions[lane] += 1
        before = ahead.get(request.needs.device, 0)
        starts = [by[request.job_id] for by in forecasts if request.job_id in by]
        if request.job_id in situation.making_way and starts:
            starts.append(situation.freed_by(request.job_id, at))
        reason = situation.reason(request, before)
        if reason.code == "excluded_nodes" and starts:
            starts.append(at + BACK_OFF_MS_MAX)
        explanations[request.job_id] = Explanation(
            request=request,
            lane=lane,
            position=positions[lane],
            ahead=before,
            reason=reason,
            earliest=min(starts, default=None),
            latest=max(starts, default=None),
        )
        if starts:
            ahead[request.needs.device] = before + 1
    return ExplainedQueue(explanations, planned)


def start_of_later(
    cluster: PlanningState, explained: ExplainedQueue, later: Request, at: Ms
) -> tuple[Ms, Ms] | None:
    """Return the expected start of a request that is submitted after `at`: if everything lasts as
    long as expected, and as long as it may. None: it fits on no node that there is.

    cluster, explained: the queue that is explained as of `at`; nothing else comes before it
    """
    if later.needs.slots > cluster.capacity.most(later.needs):
        return None
    waiting_ones = (each.request for each in explained.explanations.values())
    order = [
        _without_back_off(each) for each in waiting_ones if each.job_id in cluster.queue.requests
    ]
    played = [
        forecast(cluster, explained.planned, order, at, quantile, later) for quantile in QUANTILES
    ]
    starts = [by[later.job_id] for by in played if later.job_id in by]
    return (min(starts), max(starts)) if starts else None


def _forecasts(
    cluster: PlanningState, planned: Plan, order: Sequence[Request], at: Ms
) -> list[dict[str, Ms]]:
    """Expected starts by each estimate. What waits for its domain takes others in the end."""
    forecasts = [forecast(cluster, planned, order, at, quantile) for quantile in QUANTILES]
    until = {each.job_id: each.domain_until for each in order if each.domain_until is not None}
    if not until:
        return forecasts
    anywhere = [
        replace(each, needs=_in_any_domain(each.needs)) if each.job_id in until else each
        for each in order
    ]
    for quantile, starts in zip(QUANTILES, forecasts, strict=True):
        relaxed = forecast(cluster, planned, anywhere, at, quantile)
        for job_id in until.keys() & relaxed.keys():
            later = max(until[job_id], relaxed[job_id])
            starts[job_id] = min(later, starts.get(job_id, later))
    return forecasts


class _Situation:
    """Free slots as the planner leaves them, and what it decides: reasons follow from both."""

    def __init__(self, cluster: PlanningState, planned: Plan) -> None:
        self._cluster, self._planned = cluster, planned
        self._free: Capacity = cluster.capacity.copy()
        for start in planned.starts:
            self._free.take(start.seats, start.request.needs.memory_bytes)
        for stop in planned.preemptions:
            self._free.take(stop.seats, stop.request.needs.memory_bytes)
        self._starting = {start.request.job_id for start in planned.starts}
        stopping = {stop.request.job_id for stop in planned.preemptions}
        self.making_way = (cluster.bound.keys() | stopping) - self._starting
        for job_id in cluster.bound.keys() & self.making_way:
            needs = cluster.queue.requests[job_id].needs
            self._free.take(cluster.bound[job_id], needs.memory_bytes)
        self._by_class: dict[RequestClass, Reason | None] = {}

    def is_beyond_cap(self, request: Request) -> bool:
        """Return whether a request waits for other lanes, because premium has reached its cap."""
        job_id = request.job_id
        is_capped = request.lane == PREMIUM and request.needs in self._planned.beyond
        return is_capped and job_id not in self._starting and job_id not in self.making_way

    def freed_by(self, job_id: str, at: Ms) -> Ms:
        """Return the latest time at which the slots that others free for a job are free."""
        nodes = {node_id for node_id, _ in self._cluster.bound.get(job_id, ())}
        deadlines = (
            lease.ends_by
            for lease in self._cluster.running.values()
            if lease.ends_by is not None and nodes & {node_id for node_id, _ in lease.seats}
        )
        return max(at, max(deadlines, default=at + FREED_MS_MAX))

    def reason(self, request: Request, ahead: int) -> Reason:
        """Why a request waits. It names no other job or tenant: tenants read it."""
        if request.job_id in self._starting:
            return waiting("next_decision")
        if request.job_id in self.making_way:
            return waiting("slots_being_freed", slots=request.needs.slots)
        needs = request.needs
        if needs not in self._by_class:
            self._by_class[needs] = self._reason_of_class(needs)
        reason = self._by_class[needs]
        if reason is not None:
            return reason
        if self.is_beyond_cap(request):
            return waiting("lane_cap")
        kinds = self._free.kinds(needs)
        reservations = self._planned.reservations
        owners = {each.request.job_id for each in reservations if each.concerns(kinds)}
        if owners - {request.job_id} and self._free.find_seats(needs) is not None:
            return waiting("reservation")
        if ahead:
            return waiting("lane_order", ahead=ahead)
        return waiting("no_capacity", slots=needs.slots)

    def _reason_of_class(self, needs: RequestClass) -> Reason | None:
        """Return why nothing of a class can start at any position; None: it is busy, or its
        turn has not come.
        """
        nodes = self._free.nodes
        if not nodes:
            return waiting("no_node_up")
        alike = [node for node in nodes.values() if self._free.suits(node.kind, needs)]
        if not alike:
            return _unsuited([*nodes.values()], needs)
        domain = needs.constraints.domain
        if domain:
            domains = _said(node.domain for node in alike)
            alike = [node for node in alike if node.domain == domain]
            if not alike:
                return waiting("no_domain", domain=domain, domains=domains)
        large = [node for node in alike if node.slots >= needs.slots]
        if not large and (needs.on_one_node or _most(alike) < needs.slots):
            several = most_slots((node.kind, True, node.slots) for node in alike)
            is_apart = several >= needs.slots and not needs.on_one_node
            return waiting("no_fabric" if is_apart else "gang_too_large", slots=needs.slots)
        able = [node for node in large or alike if self._free.could_hold(node, needs)]
        if not able or (not large and _most(able) < needs.slots):
            return waiting("memory_short", slots=needs.slots, memory_bytes=needs.memory_bytes)
        names = {node.node_id for node in able}
        if names <= {*needs.barred}:
            return waiting("excluded_nodes", nodes=len(needs.barred))
        if self._free.find_seats(needs) is not None:
            return None
        free = {node.node_id: max(0, self._free.free[node.node_id]) for node in alike}
        enough = [node_id for node_id in names if free[node_id] >= needs.slots]
        if any(not self._free.has_memory(node_id, needs) for node_id in enough):
            return waiting("memory_taken", memory_bytes=needs.memory_bytes)
        if domain and self._free.find_seats(_in_any_domain(needs)) is not None:
            return waiting("domain_busy", domain=domain)
        if not enough and sum(free.values()) >= needs.slots:
            return waiting("topology", slots=needs.slots)
        is_off_spot = needs.constraints.spot is False or needs.avoids_spot
        if is_off_spot and self._free.find_seats(_on_spot_too(needs)):
            return waiting("price_class")
        return None


def _most(nodes: Iterable[PlanNode]) -> int:
    return most_slots((node.kind, node.fabric, node.slots) for node in nodes)


def _unsuited(nodes: Sequence[PlanNode], needs: RequestClass) -> Reason:
    """Why none of these nodes suits a class."""
    constraints = needs.constraints
    if constraints.spot is False and _suited(nodes, _on_spot_too(needs)):
        return waiting("price_class")
    tolerant = replace(needs, constraints=tolerating(constraints, _taints(nodes)))
    taints = {taint for node in _suited(nodes, tolerant) for taint in node.taints}
    if taints:
        return waiting("tainted", taints=_said(taints))
    model = constraints.accelerator
    models = {node.accelerator for node in nodes}
    if model and model not in models:
        return waiting("no_accelerator", accelerator=model, accelerators=_said(models))
    return waiting("no_device", device=needs.device, memory_bytes=needs.memory_bytes)


def _suited(nodes: Sequence[PlanNode], needs: RequestClass) -> list[PlanNode]:
    return [node for node in nodes if suits(node.kind, node.memory_bytes, needs)]


def _taints(nodes: Sequence[PlanNode]) -> tuple[str, ...]:
    return tuple(sorted({taint for node in nodes for taint in node.taints}))


def _said(names: Iterable[str]) -> str:
    return ", ".join(sorted({*names} - {""})[:NAMES_SAID_MAX])


def _in_any_domain(needs: RequestClass) -> RequestClass:
    return replace(needs, constraints=demands(needs.constraints, any_domain=True))


def _on_spot_too(needs: RequestClass) -> RequestClass:
    constraints = structs.replace(needs.constraints, spot=True)
    return replace(needs, constraints=constraints, avoids_spot=False)


def _serve(cluster: PlanningState, lane: int) -> Iterator[Request]:
    """A lane in order of service; every request counts for its tenant once it is served."""
    more: dict[str, int] = {}
    for request in in_order(cluster.queue, lane, more, frozenset()):
        yield request
        more[request.tenant] = more.get(request.tenant, 0) + request.needs.slots


def _without_back_off(request: Request) -> Request:
    """Return the request once nodes that it failed on are open to it again."""
    if not request.needs.barred:
        return request
    return replace(request, needs=replace(request.needs, barred=()))
