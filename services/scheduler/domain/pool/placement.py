"""From the pool's state to the planner and back: who gets slots, who is stopped, who waits why."""

from dataclasses import dataclass
from typing import Final

from schemas.envelope import Reason
from schemas.pool import LeaseMember, Placement
from schemas.reasons import waiting as waiting_reason
from schemas.units import Ms
from services.scheduler.domain.pool.faults import barred_nodes
from services.scheduler.domain.pool.planning.capacity import suits
from services.scheduler.domain.pool.planning.plan import Plan, plan
from services.scheduler.domain.pool.planning.planning_state import PlanningState
from services.scheduler.domain.pool.planning.policy import PRODUCT
from services.scheduler.domain.pool.planning.requests import (
    LANES,
    PlanNode,
    Request,
    RequestClass,
    Running,
    Seats,
)
from services.scheduler.domain.pool.state import (
    Lease,
    Pool,
    free_devices,
    held_members,
    queue,
)

# Explanations are for people. One decision explains this many changes, from the head of the queue;
# later ones catch up with the next decisions. It keeps a record far below the size limit.
EXPLAINED_MAX: Final = 64


@dataclass(frozen=True)
class PlannedGrant:
    """A placement that can start now, and the slots it gets."""

    placement: Placement
    members: tuple[LeaseMember, ...]


@dataclass(frozen=True)
class PlannedPreemption:
    """Leases that end for a placement, and the slots that it will have."""

    placement: Placement
    seats: Seats
    leases: tuple[Lease, ...]


@dataclass(frozen=True)
class PlannedExplanation:
    """A placement that still waits, for a reason that has changed."""

    placement: Placement
    reason: Reason


@dataclass(frozen=True)
class PoolPlan:
    """What the planner decided, in the pool's words.

    grants: what starts now.
    preemptions: what is stopped for whom.
    more: the planner reached its limits, so that another pass has to follow.
    """

    grants: tuple[PlannedGrant, ...]
    preemptions: tuple[PlannedPreemption, ...]
    more: bool


def plan_pool(pool: Pool, at: Ms) -> PoolPlan:
    """All that can start now, and all that is worth to be stopped for what cannot."""
    free = free_devices(pool)
    if not pool.waiting or not free:
        return PoolPlan((), (), more=False)
    planned = plan(_cluster(pool, free, at), at)
    return PoolPlan(_grants(pool, planned, free), _preemptions(pool, planned), planned.more)


def plan_explanations(pool: Pool) -> tuple[PlannedExplanation, ...]:
    """Reasons that have changed, for what is still waiting; new arrivals first."""
    new: list[PlannedExplanation] = []
    changed: list[PlannedExplanation] = []
    reasons: dict[RequestClass, Reason] = {}
    nodes = _nodes(pool)
    for waiting in queue(pool):
        needs = _needs(pool, waiting.placement)
        if needs not in reasons:
            reasons[needs] = _reason(nodes, needs)
        if reasons[needs] != waiting.reason:
            group = new if waiting.reason is None else changed
            group.append(PlannedExplanation(waiting.placement, reasons[needs]))
            if len(new) == EXPLAINED_MAX:
                break
    return tuple((new + changed)[:EXPLAINED_MAX])


def _cluster(pool: Pool, free: dict[str, list[int]], at: Ms) -> PlanningState:
    cluster = PlanningState(_nodes(pool), PRODUCT)
    for key, lease in sorted(pool.leases.items()):
        seats = tuple((member.node_id, member.slots) for member in held_members(lease))
        cluster.start(_running(key, lease, seats))
    for node_id, devices in free.items():
        cluster.capacity.set_free(node_id, len(devices))
    for job_id, waiting in sorted(pool.waiting.items()):
        request = _request(pool, waiting.placement)
        # The planner gives whole nodes to what is larger than any; agents do not run ranks yet.
        if request.needs.slots > cluster.capacity.largest(request.needs):
            continue
        cluster.queue.add(request)
        if waiting.bound:
            seats = tuple((seat.node_id, seat.slots) for seat in waiting.bound)
            cluster.bind(job_id, seats)
    cluster.queue.age(at)
    return cluster


def _nodes(pool: Pool) -> list[PlanNode]:
    return [
        PlanNode(
            node_id,
            node.description.slots,
            node.description.device,
            node.description.memory_bytes,
        )
        for node_id, node in sorted(pool.nodes.items())
        if node.is_grantable
    ]


def _needs(pool: Pool, placement: Placement) -> RequestClass:
    return RequestClass(
        slots=placement.slots,
        device=placement.device,
        memory_bytes=placement.memory_bytes,
        excluded=tuple(sorted(placement.excluded_nodes)),
        barred=barred_nodes(pool, placement.job_id),
    )


def _request(pool: Pool, placement: Placement) -> Request:
    return Request(
        job_id=placement.job_id,
        tenant=placement.tenant,
        lane=LANES.index(placement.lane),
        needs=_needs(pool, placement),
        submitted_at=placement.first_submitted_at,
        p50_ms=placement.p50_ms,
        p90_ms=placement.p90_ms,
        preemptions=placement.preemptions,
    )


def _running(key: str, lease: Lease, seats: Seats) -> Running:
    return Running(
        key=key,
        tenant=lease.ref.tenant,
        lane=LANES.index(lease.ref.lane),
        memory_bytes=lease.forecast.memory_bytes,
        p50_ms=lease.forecast.p50_ms,
        p90_ms=lease.forecast.p90_ms,
        preemptions=lease.forecast.preemptions,
        seats=seats,
        granted_at=lease.granted_at,
        started_at=lease.started_at,
        saved_at=0 if lease.started_at is None else lease.started_at + lease.captured_ms,
        ends_by=_ends_by(lease),
    )


def _ends_by(lease: Lease) -> Ms | None:
    """When what was told to end frees its slots at the latest; None: it was not told."""
    if lease.closed:
        return lease.granted_at
    if lease.killed_at is not None:
        return lease.killed_at
    return None if lease.ending is None else lease.ending.deadline


def _grants(pool: Pool, planned: Plan, free: dict[str, list[int]]) -> tuple[PlannedGrant, ...]:
    """The planner counts slots; a lease names devices, the first of those that are free."""
    return tuple(
        PlannedGrant(
            pool.waiting[start.request.job_id].placement,
            tuple(_member(pool, node_id, free[node_id], slots) for node_id, slots in start.seats),
        )
        for start in planned.starts
    )


def _preemptions(pool: Pool, planned: Plan) -> tuple[PlannedPreemption, ...]:
    return tuple(
        PlannedPreemption(
            pool.waiting[preemption.request.job_id].placement,
            preemption.seats,
            tuple(pool.leases[key] for key in preemption.keys),
        )
        for preemption in planned.preemptions
    )


def _member(pool: Pool, node_id: str, free: list[int], slots: int) -> LeaseMember:
    """These slots of a node; its free devices get fewer."""
    devices = tuple(free[:slots])
    del free[:slots]
    return LeaseMember(
        node_id=node_id,
        incarnation=pool.nodes[node_id].description.incarnation,
        slots=slots,
        devices=devices,
    )


def _reason(nodes: list[PlanNode], needs: RequestClass) -> Reason:
    """Coarse on purpose: it changes only when the situation does."""
    if not nodes:
        return waiting_reason("no_node_up")
    alike = [node for node in nodes if suits(node, needs)]
    if not alike:
        return waiting_reason("no_device", device=needs.device, memory_bytes=needs.memory_bytes)
    large = {node.node_id for node in alike if node.slots >= needs.slots}
    if not large:
        return waiting_reason("gang_too_large", slots=needs.slots)
    if large <= {*needs.barred}:
        return waiting_reason("excluded_nodes", nodes=len(needs.barred))
    return waiting_reason("no_capacity", slots=needs.slots)
