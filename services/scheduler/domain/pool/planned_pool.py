"""A pool as the planner sees it."""

from collections.abc import Iterator
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from schemas.pool import LeaseMember
from schemas.units import Ms
from services.scheduler.domain.pool.faults import barred_nodes
from services.scheduler.domain.pool.state import Lease, Pool, Waiting, held_members, kept_key
from tunery.plan.durations import follow
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.requests import (
    LANES,
    PlanNode,
    Request,
    RequestClass,
    Running,
    Seats,
    avoids_spot,
    demands,
    is_on_one_node,
    price_class_of,
)


class Queued(Struct, frozen=True):
    """A placement that waits, and nodes that it may not have for now."""

    waiting: Waiting
    barred: tuple[str, ...]


class NodePart(Struct, frozen=True):
    """A node, if it may get leases."""

    node_id: str
    node: PlanNode | None


class LeasePart(Struct, frozen=True):
    key: str
    lease: Running | None


class JobPart(Struct, frozen=True):
    """Queued placement of a job, if it has one."""

    job_id: str
    queued: Queued | None


POLICY: Final = PRODUCT
Part: TypeAlias = NodePart | LeasePart | JobPart


def node_part(pool: Pool, node_id: str) -> NodePart:
    """A node of a pool."""
    node = pool.nodes.get(node_id)
    slots = 0 if node is None else len(node.devices)
    if node is None or not node.is_grantable or slots == 0:
        return NodePart(node_id, None)
    described = node.description
    return NodePart(
        node_id,
        PlanNode(
            node_id,
            slots,
            described.device,
            described.memory_bytes,
            accelerator=described.accelerator,
            price_class=price_class_of(spot=described.spot, reserved=described.reserved),
            domain=described.domain,
            warned=node.warned,
            taints=tuple(sorted(described.taints)),
            fabric=described.fabric,
        ),
    )


def lease_part(pool: Pool, key: str) -> LeasePart:
    lease = pool.leases.get(key)
    return LeasePart(key, None if lease is None else _running(key, lease, _seats(pool, lease)))


def kept_part(pool: Pool, job_id: str) -> LeasePart:
    """Slots that are reserved for the evaluation of a job."""
    kept, key = pool.kept.get(job_id), kept_key(job_id)
    if kept is None:
        return LeasePart(key, None)
    held = Running(
        key=key,
        tenant=kept.tenant,
        lane=LANES.index(kept.lane),
        memory_bytes=kept.memory_bytes,
        p50_ms=0,
        p90_ms=0,
        preemptions=0,
        seats=((kept.seat.node_id, kept.seat.slots),),
        granted_at=kept.since,
        ends_by=kept.until,
    )
    return LeasePart(key, held)


def job_part(pool: Pool, job_id: str) -> JobPart:
    """Return the queued placement of a job."""
    waiting = pool.waiting.get(job_id)
    if waiting is None:
        return JobPart(job_id, None)
    return JobPart(job_id, Queued(waiting, barred_nodes(pool, job_id)))


class PlannedPool:
    """The planning state of one pool, which `put` makes that of another pool.

    state: what the planner plans on.
    queued: what waits, by job.
    """

    def __init__(self, pool: Pool) -> None:
        self.state = PlanningState((), POLICY)
        self.queued: dict[str, Queued] = {}
        for part in _parts(pool):
            self.put(part)

    def put(self, part: Part) -> Part:
        """A part is this one now. Returns the one that was there."""
        match part:
            case NodePart():
                return self._put_node(part)
            case LeasePart():
                return self._put_lease(part)
            case JobPart():
                return self._put_job(part)
            case _:
                assert_never(part)

    def _put_node(self, part: NodePart) -> NodePart:
        before = NodePart(part.node_id, self.state.capacity.nodes.get(part.node_id))
        if part.node is None:
            self.state.remove_node(part.node_id)
        else:
            self.state.put_node(part.node)
        return before

    def _put_lease(self, part: LeasePart) -> LeasePart:
        before = self.state.running.get(part.key)
        if before is not None:
            self.state.end(part.key)
        if part.lease is not None:
            self.state.start(part.lease)
        return LeasePart(part.key, before)

    def _put_job(self, part: JobPart) -> JobPart:
        job_id, queued, queue = part.job_id, part.queued, self.state.queue
        before = self.queued.pop(job_id, None)
        request = None if queued is None else _request(queued)
        if before is not None and queue.requests[job_id] != request:
            self.state.leave_queue(job_id)
        if queued is not None and request is not None:
            self.queued[job_id] = queued
            if job_id not in queue.requests:
                queue.add(request)
            bound = tuple((seat.node_id, seat.slots) for seat in queued.waiting.bound)
            self.state.bind(job_id, bound)
        return JobPart(job_id, before)


def _parts(pool: Pool) -> Iterator[Part]:
    yield from (node_part(pool, node_id) for node_id in pool.nodes)
    yield from (lease_part(pool, key) for key in pool.leases)
    yield from (kept_part(pool, job_id) for job_id in pool.kept)
    yield from (job_part(pool, job_id) for job_id in pool.waiting)


def _needs(queued: Queued) -> RequestClass:
    placement = queued.waiting.placement
    return RequestClass(
        slots=placement.slots,
        device=placement.device,
        memory_bytes=placement.memory_bytes,
        excluded=tuple(sorted(placement.excluded_nodes)),
        barred=queued.barred,
        constraints=demands(placement.constraints, any_domain=queued.waiting.any_domain),
        avoids_spot=avoids_spot(placement.constraints, queued.waiting.spot),
        on_one_node=is_on_one_node(placement.role),
    )


def _request(queued: Queued) -> Request:
    placement, expected = queued.waiting.placement, queued.waiting.expected_time
    return Request(
        job_id=placement.job_id,
        tenant=placement.tenant,
        lane=LANES.index(placement.lane),
        needs=_needs(queued),
        submitted_at=placement.first_submitted_at,
        queued_at=queued.waiting.queued_at,
        p50_ms=expected.p50_ms,
        p90_ms=expected.p90_ms,
        estimate_ms=placement.p50_ms,
        preemptions=placement.preemptions,
    )


def _seats(pool: Pool, lease: Lease) -> Seats:
    """Slots that a lease holds, less those whose devices have a fault."""
    return tuple(
        (member.node_id, member.slots - _faulty_held(pool, member))
        for member in held_members(lease)
    )


def _faulty_held(pool: Pool, member: LeaseMember) -> int:
    """Faulty devices that a member holds, which its node does not offer either.

    What an elastic node held before it shrank it still holds.
    """
    node = pool.nodes.get(member.node_id)
    if node is None or not node.faults:
        return 0
    offered = range(node.description.slots)
    return sum(number in offered and number not in node.devices for number in member.devices)


def _running(key: str, lease: Lease, seats: Seats) -> Running:
    forecast = lease.forecast
    expected = follow(
        forecast.expected,
        forecast.limit_ms,
        lease.captured_ms,
        lease.first_step,
        lease.steps,
        lease.done_steps,
    )
    return Running(
        key=key,
        tenant=lease.ref.tenant,
        lane=LANES.index(lease.ref.lane),
        memory_bytes=forecast.memory_bytes,
        p50_ms=expected.p50_ms,
        p90_ms=expected.p90_ms,
        estimate_ms=forecast.estimate_ms,
        preemptions=forecast.preemptions,
        seats=seats,
        granted_at=lease.granted_at,
        started_at=lease.started_at,
        saved_at=0 if lease.started_at is None else lease.started_at + lease.captured_ms,
        ends_by=_ends_by(lease),
        submitted_at=forecast.submitted_at,
    )


def _ends_by(lease: Lease) -> Ms | None:
    """Return when an ending lease frees its slots at the latest; None: it is not ending."""
    if lease.closed:
        return lease.granted_at
    if lease.killed_at is not None:
        return lease.killed_at
    return None if lease.ending is None else lease.ending.deadline
