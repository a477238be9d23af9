"""Why a job waits: of one job for its tenant, and the whole queue for operators."""

import asyncio
from typing import Annotated

from fastapi import Query

from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.domain.queue_responses import (
    JobQueueResponse,
    PoolQueueResponse,
    pool_queue_response,
)
from services.gateway.jobs.domain.queue_view import view_queue
from services.gateway.jobs.domain.responses import queue_response
from services.gateway.jobs.domain.statuses import job_status
from services.gateway.jobs.domain.what_if import QueuePlanRequest, changed_rows
from services.gateway.jobs.routes import find
from services.gateway.web.deps import Admin, Caller
from services.gateway.web.domain.responses import seconds
from services.gateway.web.routing import new_router

router = new_router("queue")


@router.get("/v1/fine_tuning/jobs/{job_id}/queue")
async def explain_job(job_id: str, deps: WithJobDeps, caller: Caller) -> JobQueueResponse:
    """Why a job waits, what lets it go on, and when it is expected to begin."""
    row = await find(deps, caller, job_id)
    status = job_status(row.wanted, row.phase, row.outcome)
    return JobQueueResponse(
        job_id=row.id,
        status=status,
        at=seconds(deps.clock.now_ms()),
        queue=queue_response(row, status, await deps.queues.outlook_of(row)),
    )


@router.get("/v1/queue")
async def show_queue(
    deps: WithJobDeps, admin: Admin, pool: Annotated[str, Query(max_length=63)] = "default"
) -> PoolQueueResponse:
    """A pool's nodes, leases, waiting jobs in order of service, and what is decided next."""
    rows, view = await deps.queues.read(pool)
    return pool_queue_response(pool, rows, view, deps.clock.now_ms())


@router.post("/v1/queue/plan")
async def plan_queue(body: QueuePlanRequest, deps: WithJobDeps, admin: Admin) -> PoolQueueResponse:
    """The queue of a pool as the planner would see it with nodes added or removed, or with jobs
    changed or left out. Nothing is recorded. A node of the pool says what the new ones are like.
    """
    rows, _ = await deps.queues.read(body.pool)
    rows, now = changed_rows(rows, body), deps.clock.now_ms()
    view = await asyncio.to_thread(view_queue, rows, now)
    return pool_queue_response(body.pool, rows, view, now)
