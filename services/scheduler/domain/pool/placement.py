"""Who gets a place: lanes in strict order, first come first served, the fullest node that fits.

A placement that does not fit now is passed over: there are no reservations yet, so a stream of
small jobs can delay a large one.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from schemas.pool import PlacementQueued
from services.scheduler.domain.pool.state import Pool, free_slots, queue

# Explanations are for people. One decision explains this many changes, from the head of the queue;
# later ones catch up with the next decisions. It keeps a record far below the size limit.
EXPLAINED_MAX: Final = 64
GRANTS_MAX: Final = 16  # a grant carries its work; more would not fit into one record


@dataclass(frozen=True)
class Grant:
    placement: PlacementQueued
    node_id: str


@dataclass(frozen=True)
class Wait:
    placement: PlacementQueued
    reason: str
    position: int


def grants(pool: Pool) -> tuple[Grant, ...]:
    """All that can start now. Best fit: the fewest slots left over, ties by node id."""
    free = free_slots(pool)
    found: list[Grant] = []
    for waiting in queue(pool):
        placement = waiting.placement
        allowed = _allowed(pool, placement)
        fitting = [
            (slots, node_id)
            for node_id, slots in free.items()
            if slots >= placement.slots and node_id in allowed
        ]
        if fitting:
            _, node_id = min(fitting)
            free[node_id] -= placement.slots
            found.append(Grant(placement, node_id))
        if len(found) == GRANTS_MAX or not any(free.values()):
            break
    return tuple(found)


def waits(pool: Pool) -> tuple[Wait, ...]:
    """Explanations that have changed, for what is still waiting; new arrivals first."""
    changed: list[Wait] = []
    for position, waiting in enumerate(queue(pool), start=1):
        reason = _reason(pool, waiting.placement)
        if (reason, position) != (waiting.reason, waiting.position):
            changed.append(Wait(waiting.placement, reason, position))
    new = [w for w in changed if pool.waiting[w.placement.job_id].position == 0]
    old = [w for w in changed if pool.waiting[w.placement.job_id].position != 0]
    return tuple((new + old)[:EXPLAINED_MAX])


def _allowed(pool: Pool, placement: PlacementQueued) -> Set[str]:
    """Nodes that are up and large enough, without those that failed under this job.

    Where no other is left they are tried again: a job would wait for ever, and retries are counted.
    """
    large = {
        node.node_id
        for node in pool.nodes.values()
        if node.standing == "up" and node.slots >= placement.slots
    }
    return large - set(placement.exclude_nodes) or large


def _reason(pool: Pool, placement: PlacementQueued) -> str:
    """Coarse on purpose: it changes only when the situation does."""
    slots = f"{placement.slots} slot" + ("s" if placement.slots > 1 else "")
    if all(node.standing != "up" for node in pool.nodes.values()):
        return "no node of the pool is up"
    if not _allowed(pool, placement):
        return f"no node of the pool has {slots}: it waits until one is added"
    return f"waiting for {slots}: every node that fits is busy"
