"""Clusters, requests and a queue for tests of the planner."""

from dataclasses import replace

from schemas.training import Device
from tunery.plan.scheduling.plan import Plan, plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT, Policy
from tunery.plan.scheduling.requests import (
    LANES,
    PlanNode,
    Request,
    RequestClass,
    Running,
    Seats,
    granted,
)

HOUR = 3_600_000
MINUTE = 60_000
GB = 1_000_000_000


def nodes(*sizes: int, domain: str = "") -> list[PlanNode]:
    """Nodes `a`, `b`, … with these numbers of slots."""
    return [
        PlanNode(chr(ord("a") + number), slots, "cuda", 24 * GB, domain)
        for number, slots in enumerate(sizes)
    ]


def needs(
    slots: int = 1, device: Device = "cuda", memory_bytes: int = GB, *excluded: str
) -> RequestClass:
    return RequestClass(slots, device, memory_bytes, excluded)


def request(
    job_id: str, slots: int = 1, lane: str = "standard", hours: int = 1, tenant: str = "acme"
) -> Request:
    return Request(
        job_id=job_id,
        tenant=tenant,
        lane=[*LANES].index(lane),
        needs=needs(slots),
        submitted_at=0,
        p50_ms=hours * HOUR,
        p90_ms=hours * HOUR,
    )


def cluster(of: list[PlanNode], *waiting: Request, policy: Policy = PRODUCT) -> PlanningState:
    """A cluster in which these requests wait, submitted a second apart."""
    state = PlanningState(of, policy)
    for number, each in enumerate(waiting):
        state.queue.add(replace(each, submitted_at=number * 1_000))
    return state


def ran(each: Request, seats: Seats, for_ms: int, at: int) -> Running:
    """A lease that has worked for so long and has saved its work just now."""
    lease = granted(each, seats, at - for_ms, each.job_id)
    return replace(lease, started_at=at - for_ms, saved_at=at)


def started(planned: Plan) -> dict[str, Seats]:
    """Job → its seats."""
    return {start.request.job_id: start.seats for start in planned.starts}


def apply(state: PlanningState, planned: Plan, at: int) -> None:
    """All that starts now has started, and begun to work."""
    for start in planned.starts:
        state.leave_queue(start.request.job_id)
        lease = granted(start.request, start.seats, at, start.request.job_id)
        state.start(replace(lease, started_at=at, saved_at=at))


def plan_at(state: PlanningState, at: int) -> Plan:
    return plan(state, at)
