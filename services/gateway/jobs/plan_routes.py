"""`/v1/fine_tuning/jobs/plan`: what a job would be, without making it or recording anything."""

import asyncio
from typing import Final

from msgspec import structs

from schemas.account import Lane
from schemas.units import Ms
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.domain.cost_responses import estimate_response, no_estimate_response
from services.gateway.jobs.domain.integrations import shown_integrations
from services.gateway.jobs.domain.plan_responses import (
    PlanResponse,
    nodes_of,
    refusal_responses,
    settings_of,
)
from services.gateway.jobs.domain.queue_view import request_of_new
from services.gateway.jobs.domain.requested import requested_settings
from services.gateway.jobs.domain.responses import duplicate_response, queue_response_of_new
from services.gateway.jobs.domain.texts import texts_of
from services.gateway.jobs.recipes import recipe_of
from services.gateway.jobs.standing import refusals, standing_of, standing_without
from services.gateway.jobs.submission_routes import NOT_VALIDATED, Submission, WithSubmission
from services.gateway.views.tables.jobs import JobRow
from services.gateway.web.routing import new_router
from tunery.plan.estimate import corrected, estimate
from tunery.plan.price import lane_price

KEY_CAP: Final = "what the API key may spend in a month"
HOLD: Final = "whether budgets allow the job: its file is being validated"
router = new_router("fine-tuning")


@router.post("/v1/fine_tuning/jobs/plan")
async def plan_job(body: JobRequest, deps: WithJobDeps, submission: WithSubmission) -> PlanResponse:
    """Plan a job: every setting with where it comes from, the nodes that it may run on, when it
    would begin, what it would cost, and why it would be refused. The body is that of a submission.
    Nothing is recorded.
    """
    return await planned(deps, submission, body)


async def planned(
    deps: JobDeps,
    submission: Submission,
    body: JobRequest,
    *,
    lane: Lane | None = None,
    instead_of: JobRow | None = None,
    later_ms: Ms = 0,
) -> PlanResponse:
    """Return the plan of a job. Raises ApiError.

    lane: in which it would be if its tenant's plan had that lane; None: as the plan is
    instead_of: the job whose place in the queue and whose hold it would take
    later_ms: time from now until it would be submitted
    """
    submissions, caller = submission.submissions, submission.caller
    resolved = await submission.resolve(body)
    spec, tokens = resolved.spec, resolved.tokens
    if lane is not None and (book := await deps.prices.book(spec.price.version)) is not None:
        spec = structs.replace(spec, price=lane_price(book, lane))
    now = deps.clock.now_ms() + later_ms
    needed = outlook = None
    problems, unchecked = [], [] if caller.cap is None else [KEY_CAP]
    forecast = no_estimate_response(spec, NOT_VALIDATED)
    if tokens is None:
        unchecked.append(HOLD)
    else:
        needed = corrected(spec, estimate(spec, tokens))
        new = request_of_new(caller.tenant, spec, needed, now)
        outlook, standing = await asyncio.gather(
            deps.queues.outlook_of_new(new, spec.pool, instead_of),
            standing_of(deps.views, caller.tenant, caller.key_id, now),
        )
        if instead_of is not None:
            key_id = deps.unseal(instead_of.submitted_by, "actor")
            standing = standing_without(standing, instead_of, key_id)
        problems = refusal_responses(refusals(standing, spec, needed), standing.committed_gpu_ms)
        forecast = estimate_response(spec, needed, None if outlook is None else outlook.earliest)
    earlier = await submissions.earlier(caller, spec)
    settings, _ = requested_settings(body)
    return PlanResponse(
        allowed_to_proceed=not problems,
        refusals=problems,
        unchecked=unchecked,
        settings=settings_of(spec, settings, is_seed_given=body.seed is not None),
        nodes=nodes_of(await submissions.nodes(), spec, needed),
        queue=None if outlook is None else queue_response_of_new(outlook),
        estimate=forecast,
        configuration=spec.configuration,
        duplicate_of=None if earlier is None else duplicate_response(earlier),
        recipe=recipe_of(spec, texts_of(spec, deps.unseal), shown_integrations(spec, deps.unseal)),
    )
