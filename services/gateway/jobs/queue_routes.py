"""Why a job waits: of one job for its tenant, and the whole queue for operators."""

import asyncio
from typing import Annotated, Any

from fastapi import Query

from schemas.account import Lane
from schemas.units import Ms
from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.domain.integrations import shown_integrations
from services.gateway.jobs.domain.plan_responses import RefusalResponse
from services.gateway.jobs.domain.queue_responses import (
    JobQueueResponse,
    PoolQueueResponse,
    pool_queue_response,
)
from services.gateway.jobs.domain.queue_view import view_queue
from services.gateway.jobs.domain.responses import cost_summary, queue_response
from services.gateway.jobs.domain.statuses import job_status
from services.gateway.jobs.domain.texts import texts_of
from services.gateway.jobs.domain.what_if import (
    LATER_MS,
    Change,
    ChangedStartResponse,
    QueuePlanRequest,
    StartsResponse,
    changed_bodies,
    changed_rows,
    higher_lanes,
)
from services.gateway.jobs.plan_routes import planned
from services.gateway.jobs.recipes import recipe_of
from services.gateway.jobs.routes import find
from services.gateway.jobs.submission_routes import WithSubmission
from services.gateway.web.deps import Admin, Caller
from services.gateway.web.domain.errors import ApiError
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


@router.get("/v1/fine_tuning/jobs/{job_id}/starts")
async def starts_of_job(
    job_id: str, deps: WithJobDeps, submission: WithSubmission
) -> StartsResponse:
    """What would start a job sooner: fewer slots, half the epochs, any model of device, any domain,
    spot machines too, a plan with a higher lane; and when it would start if it were submitted
    tonight; of a session or an evaluation alone how it is. Nothing is recorded. Empty if it does
    not wait.
    """
    row = await find(deps, submission.caller, job_id)
    status, now = job_status(row.wanted, row.phase, row.outcome), deps.clock.now_ms()
    queue = queue_response(row, status, await deps.queues.outlook_of(row))
    if queue is None:
        return StartsResponse(job_id=row.id, at=seconds(now), data=[])
    cost = cost_summary(row)
    as_it_is = ChangedStartResponse(
        change="none",
        text="As it is",
        body=None,
        queue=queue,
        refusals=[],
        currency=cost.currency,
        amount_micro=cost.estimated_amount_micro,
        amount_max_micro=cost.amount_max_micro,
    )
    if row.spec.session is not None or row.spec.evaluation is not None:
        # no request for a training has its shape
        return StartsResponse(job_id=row.id, at=seconds(now), data=[as_it_is])
    recipe = recipe_of(
        row.settled, texts_of(row.spec, deps.unseal), shown_integrations(row.spec, deps.unseal)
    )
    body = {name: value for name, value in recipe.items() if name != "version"}

    async def start(
        change: Change,
        text: str,
        changed: dict[str, Any],
        lane: Lane | None = None,
        later_ms: Ms = 0,
    ) -> ChangedStartResponse:
        known: dict[str, Any] = {"change": change, "text": text, "body": None if lane else changed}
        try:
            plan = await planned(
                deps,
                submission,
                JobRequest.model_validate(changed),
                lane=lane,
                instead_of=row,
                later_ms=later_ms,
            )
        except ApiError as error:
            if error.status in (401, 403, 429):
                raise
            refusal = RefusalResponse(code=error.code, message=error.message, param=error.param)
            return ChangedStartResponse(**known, queue=None, refusals=[refusal])
        forecast = plan.estimate.model_dump(include={"amount_micro", "amount_max_micro"})
        currency = plan.estimate.price.currency
        return ChangedStartResponse(
            **known, queue=plan.queue, refusals=plan.refusals, currency=currency, **forecast
        )

    # one after the other: each plays the whole queue through
    rows = [as_it_is, *[await start(*each) for each in changed_bodies(body)]]
    text = "Submitted 8 hours from now, such as tonight"
    rows.append(await start("later", text, body, later_ms=LATER_MS))
    rows += [
        await start("lane", f"With the plan {lane}, which an operator sets", body, lane)
        for lane in higher_lanes(row.lane)
    ]
    return StartsResponse(job_id=row.id, at=seconds(now), data=rows)
