"""Who gets slots: lanes in strict order, first come first served, the fullest node that fits.

A placement that does not fit now is passed over: there are no reservations yet, so a stream of
small jobs can delay a large one.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from schemas.envelope import Reason
from schemas.pool import LeaseMember, Placement
from schemas.reasons import waiting as waiting_reason
from services.scheduler.domain.pool.faults import failed_reason, without_failed
from services.scheduler.domain.pool.state import Pool, Waiting, free_devices, queue

# Explanations are for people. One decision explains this many changes, from the head of the queue;
# later ones catch up with the next decisions. It keeps a record far below the size limit.
EXPLAINED_MAX: Final = 64
GRANTS_MAX: Final = 16  # of one decision; the next one goes on


@dataclass(frozen=True)
class PlannedGrant:
    """A placement that can start now, and the slots it gets."""

    placement: Placement
    members: tuple[LeaseMember, ...]


@dataclass(frozen=True)
class PlannedExplanation:
    """A placement that still waits, for a reason that has changed."""

    placement: Placement
    reason: Reason


def plan_grants(pool: Pool) -> tuple[PlannedGrant, ...]:
    """All that can start now. Best fit: the fewest slots left over, ties by node id."""
    free = free_devices(pool)
    grants: list[PlannedGrant] = []
    for waiting in queue(pool):
        placement = waiting.placement
        allowed = _allowed(pool, placement)
        fitting = [
            (len(devices), node_id)
            for node_id, devices in free.items()
            if len(devices) >= placement.slots and node_id in allowed
        ]
        if fitting:
            _, node_id = min(fitting)
            devices = tuple(free[node_id][: placement.slots])
            free[node_id] = free[node_id][placement.slots :]
            grants.append(PlannedGrant(placement, (_member(pool, node_id, devices),)))
        if len(grants) == GRANTS_MAX or not any(free.values()):
            break
    return tuple(grants)


def plan_explanations(pool: Pool) -> tuple[PlannedExplanation, ...]:
    """Reasons that have changed, for what is still waiting; new arrivals first."""
    new: list[PlannedExplanation] = []
    changed: list[PlannedExplanation] = []
    for waiting in queue(pool):
        reason = _reason(pool, waiting)
        if reason != waiting.reason:
            group = new if waiting.reason is None else changed
            group.append(PlannedExplanation(waiting.placement, reason))
    return tuple((new + changed)[:EXPLAINED_MAX])


def _member(pool: Pool, node_id: str, devices: tuple[int, ...]) -> LeaseMember:
    return LeaseMember(
        node_id=node_id,
        incarnation=pool.nodes[node_id].description.incarnation,
        slots=len(devices),
        devices=devices,
    )


def _allowed(pool: Pool, placement: Placement) -> Set[str]:
    """Nodes that are up and large enough, without those that failed under this job."""
    large = {
        node_id
        for node_id, node in pool.nodes.items()
        if node.is_grantable and node.description.slots >= placement.slots
    }
    return without_failed(pool, placement, large)


def _reason(pool: Pool, waiting: Waiting) -> Reason:
    """Coarse on purpose: it changes only when the situation does."""
    slots = waiting.placement.slots
    if not any(node.is_grantable for node in pool.nodes.values()):
        return waiting_reason("no_node_up")
    if not _allowed(pool, waiting.placement):
        return failed_reason(pool, waiting.placement) or waiting_reason(
            "gang_too_large", slots=slots
        )
    return waiting_reason("no_capacity", slots=slots)
