"""Plain routes for clients not written for OpenAI: `/v1/jobs`, `/v1/fine-tuning/jobs`."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Query, Response
from starlette.responses import StreamingResponse

from services.gateway.jobs import event_routes as events
from services.gateway.jobs import routes as jobs
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain import plain_bodies as plain
from services.gateway.jobs.domain.bodies import FineTuningRequest, JobRequest, SimpleJobRequest
from services.gateway.jobs.domain.event_responses import LogLineResponse
from services.gateway.jobs.domain.plain_responses import PlainJobResponse, plain_job_response
from services.gateway.jobs.streams import streams
from services.gateway.jobs.submission_routes import Submission, WithSubmission
from services.gateway.models import routes as models
from services.gateway.views.tables.files import FILES
from services.gateway.views.tables.jobs import JOBS, JobRow
from services.gateway.web.deps import Caller
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.domain.responses import Page, listing
from services.gateway.web.pages import After, page
from services.gateway.web.routing import new_router

JOBS_ROOT: Final = "/v1/jobs"
FINE_TUNING: Final = "/v1/fine-tuning/jobs"
ROOTS: Final = (JOBS_ROOT, FINE_TUNING)
router = new_router("plain")


@router.post(JOBS_ROOT)
async def create_plain_job(
    body: SimpleJobRequest, response: Response, deps: WithJobDeps, submission: WithSubmission
) -> PlainJobResponse:
    """Submit a job, given a base model, an uploaded file and hyper-parameters."""
    request = plain.from_simple(body)
    return await _create(request, plain.OF_SIMPLE, response, deps, submission)


@router.post(FINE_TUNING)
async def create_fine_tuning_job(
    body: FineTuningRequest, response: Response, deps: WithJobDeps, submission: WithSubmission
) -> PlainJobResponse:
    request = plain.from_fine_tuning(body)
    return await _create(request, plain.OF_FINE_TUNING, response, deps, submission)


async def _create(
    request: JobRequest,
    names: Mapping[str, str],
    response: Response,
    deps: JobDeps,
    submission: Submission,
) -> PlainJobResponse:
    try:
        row = await submission.job_of(request, response)
    except ApiError as error:
        raise plain.with_plain_names(error, names) from error
    return await _shown(deps, row)


async def list_plain_jobs(
    deps: WithJobDeps,
    caller: Caller,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=jobs.LIMIT_MAX)] = jobs.LIMIT,
) -> Page[PlainJobResponse]:
    rows, more = await page(deps.views, JOBS, {"tenant": caller.tenant}, limit=limit, after=after)
    return listing(Page[PlainJobResponse], [await _shown(deps, row) for row in rows], more)


async def retrieve_plain_job(job_id: str, deps: WithJobDeps, caller: Caller) -> PlainJobResponse:
    """States: queued, provisioning, running, checkpointing, evaluating, paused, succeeded,
    failed, cancelled."""
    return await _shown(deps, await jobs.find(deps, caller, job_id))


async def plain_job_logs(
    job_id: str, deps: WithJobDeps, caller: Caller, asked: events.Part
) -> Page[Any] | StreamingResponse:
    """Serve the same as `/v1/fine_tuning/jobs/{job_id}/logs`."""
    return await events.list_logs(job_id, deps, caller, asked)


for root in ROOTS:
    kind = "fine_tuning" if root == FINE_TUNING else "plain"
    router.get(root, name=f"list_{kind}_jobs")(list_plain_jobs)
    router.get(root + "/{job_id}", name=f"retrieve_{kind}_job")(retrieve_plain_job)
    router.get(
        root + "/{job_id}/logs",
        name=f"{kind}_job_logs",
        response_model=None,
        responses=streams(Page[LogLineResponse]),
    )(plain_job_logs)


router.post("/adapters/{model_id:path}/promote", name="promote_adapter")(models.promote_model)


async def _shown(deps: JobDeps, row: JobRow) -> PlainJobResponse:
    where = {"tenant": row.tenant, "id": row.spec.training_file}
    training = await deps.views.first(FILES, where)
    moment = await jobs.current_moment(deps, row)
    return plain_job_response(row, training, deps.unseal, moment)
