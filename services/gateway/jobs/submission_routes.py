"""Routes that submit a job, or estimate it without submitting it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from pydantic import ValidationError

from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain.bodies import EstimateRequest, JobRequest
from services.gateway.jobs.domain.cost_responses import (
    EstimateResponse,
    NoEstimateResponse,
    estimate_response,
    no_estimate_response,
)
from services.gateway.jobs.domain.queue_view import request_of_new
from services.gateway.jobs.domain.resolve import Resolved, checked_settings
from services.gateway.jobs.domain.responses import JobResponse
from services.gateway.jobs.routes import current_job
from services.gateway.jobs.submission import Intent, Submissions, intent_of
from services.gateway.models.routes import find_base
from services.gateway.views.tables.jobs import JobRow
from services.gateway.web.deps import Caller, Principal
from services.gateway.web.problems import MoreProblems
from services.gateway.web.routing import new_router
from tunery.plan.estimate import corrected, estimate

NOT_VALIDATED: Final = "train_file_not_validated"
NOT_UPLOADED: Final = "train_file_not_uploaded"
router = new_router("fine-tuning")


@dataclass(frozen=True)
class Submission:
    """A request to submit a job: the caller and the idempotency headers."""

    submissions: Submissions
    caller: Principal
    intent: Intent

    async def job_of(self, body: JobRequest, response: Response) -> JobRow:
        """Submit a job; sets the header `idempotent-replayed` if it existed already."""
        submitted = await self.submissions.submit(self.caller, body, self.intent)
        if submitted.replayed:
            response.headers["idempotent-replayed"] = "true"
        return submitted.row

    async def resolve(self, body: JobRequest) -> Resolved:
        return await self.submissions.resolve(self.caller, body)


async def _submission(
    request: Request, caller: Caller, intent: Annotated[Intent, Depends(intent_of)]
) -> Submission:
    return Submission(request.app.state.submissions, caller, intent)


WithSubmission = Annotated[Submission, Depends(_submission)]


async def _more_problems(
    request: Request, body: dict[str, Any], wrong: set[str]
) -> Sequence[tuple[str, str]]:
    """Return (field, problem) pairs of the settings in a body whose other fields are malformed."""
    stand_ins = {"model": "unknown", "training_file": "unknown"}
    fields = {name: value for name, value in body.items() if name not in wrong}
    try:
        sound = JobRequest.model_validate({**stand_ins, **fields})
    except ValidationError:
        return ()
    _, problems = checked_settings(sound, await find_base(request.app.state.deps, sound.model))
    return [(problem.param, problem.message) for problem in problems]


MORE_PROBLEMS: Final[Mapping[str, MoreProblems]] = {
    "/v1/fine_tuning/jobs": _more_problems,
    "/v1/fine_tuning/jobs/estimate": _more_problems,
    "/v1/fine_tuning/jobs/plan": _more_problems,
}


# before the routes with {job_id}, which would match `estimate`
@router.post("/v1/fine_tuning/jobs/estimate")
async def estimate_job(
    body: EstimateRequest, deps: WithJobDeps, submission: WithSubmission
) -> EstimateResponse | NoEstimateResponse:
    """Estimate a job, and say whether it would be refused. The body is that of a submission, and so
    are the checks: of budgets, of the key's cap and of the tenant's limits. No job is created.

    Without `training_file` all else is checked: so a file is not uploaded for a wrong request.
    """
    return await estimated(body, deps, submission)


async def estimated(
    body: JobRequest, deps: JobDeps, submission: Submission
) -> EstimateResponse | NoEstimateResponse:
    """Estimate a request without recording anything. Raises ApiError."""
    resolved = await submission.resolve(body)
    spec, tokens = resolved.spec, resolved.tokens
    if tokens is None:
        reason = NOT_UPLOADED if body.training_file is None else NOT_VALIDATED
        return no_estimate_response(spec, reason)
    needed = corrected(spec, estimate(spec, tokens))
    new = request_of_new(submission.caller.tenant, spec, needed, deps.clock.now_ms())
    starts_at = await deps.queues.start_of_new(new, spec.pool)
    refusal = await submission.submissions.refusal(submission.caller, resolved)
    return estimate_response(spec, needed, starts_at, refusal)


@router.post("/v1/fine_tuning/jobs")
async def create_job(
    body: JobRequest, response: Response, deps: WithJobDeps, submission: WithSubmission
) -> JobResponse | EstimateResponse | NoEstimateResponse:
    """Submit a job. The response comes when it is recorded; a repeated request is one job."""
    if body.dry_run:
        return await estimated(body, deps, submission)
    return await current_job(deps, await submission.job_of(body, response))
