"""Conversion between the pool's state and the planner: starts and preemptions."""

from dataclasses import dataclass

from schemas.pool import LeaseMember, Placement
from schemas.units import Ms
from services.scheduler.domain.pool.carried import planned_pool
from services.scheduler.domain.pool.state import Lease, Pool, free_devices
from tunery.plan.scheduling.plan import Plan, plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.requests import Seats


@dataclass(frozen=True)
class PlannedGrant:
    """A placement that can start now, and the slots it gets."""

    placement: Placement
    members: tuple[LeaseMember, ...]


@dataclass(frozen=True)
class PlannedPreemption:
    """Preempted leases, and the slots that a placement will get for them."""

    placement: Placement
    seats: Seats
    leases: tuple[Lease, ...]


@dataclass(frozen=True)
class PoolPlan:
    """Plan in terms of the pool."""

    grants: tuple[PlannedGrant, ...]  # placements that start now
    # leases that are stopped, and the placements that they make way for
    preemptions: tuple[PlannedPreemption, ...]
    more: bool  # the planner reached its limits, so that another pass has to follow


def plan_pool(pool: Pool, at: Ms) -> PoolPlan:
    """Plan starts for now, and preemptions for placements that cannot start."""
    state = planned_pool(pool).state
    if not state.queue.requests or not state.capacity.nodes:
        return PoolPlan((), (), more=False)
    planned = plan(state, at)
    return PoolPlan(_grants(pool, planned, state), _preemptions(pool, planned), planned.more)


def _grants(pool: Pool, planned: Plan, state: PlanningState) -> tuple[PlannedGrant, ...]:
    """Choose devices for planned slots: the first free ones of each node."""
    on_nodes = {node_id for start in planned.starts for node_id, _ in start.seats}
    free = {
        node_id: free_devices(
            pool.nodes[node_id],
            (
                pool.leases[lease.key]
                for lease in state.leases_on(node_id)
                if lease.key in pool.leases  # kept slots have no devices of their own
            ),
        )
        for node_id in on_nodes
    }
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
    """Return a member with `slots` slots of a node, and remove its devices from `free`."""
    devices = tuple(free[:slots])
    del free[:slots]
    return LeaseMember(
        node_id=node_id,
        incarnation=pool.nodes[node_id].description.incarnation,
        slots=slots,
        devices=devices,
    )
