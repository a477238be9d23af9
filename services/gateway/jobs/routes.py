"""`/v1/fine_tuning/jobs`: reading, pausing, resuming and cancelling jobs."""

import json
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Query, Request

from schemas import errors
from schemas.envelope import Message
from schemas.job import CancelJob, PauseJob, ResumeJob
from schemas.topics import JOB
from schemas.units import Ms
from services.gateway.accounts.deps import NamedTenant
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain.checkpoint_responses import (
    CheckpointResponse,
    checkpoint_response,
)
from services.gateway.jobs.domain.cost_responses import JobCostResponse, cost_response
from services.gateway.jobs.domain.job_filter import JobFilter
from services.gateway.jobs.domain.responses import (
    AnswersResponse,
    JobResponse,
    job_response,
    row_at,
)
from services.gateway.jobs.domain.responses import Moment as JobMoment
from services.gateway.jobs.domain.statuses import JobStatus
from services.gateway.jobs.domain.texts import FILTERS
from services.gateway.views.event_ids import step_event_id
from services.gateway.views.ports import Cursor, Where
from services.gateway.views.tables.jobs import (
    CHECKPOINTS,
    JOB_HISTORY,
    JOBS,
    STEPS,
    USAGE,
    JobRow,
    StepRow,
)
from services.gateway.web.deps import Caller, Principal
from services.gateway.web.domain.bodies import SECONDS_MAX
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.domain.responses import Page, listing
from services.gateway.web.pages import After, page
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within

Moment = Annotated[
    int | None, Query(ge=0, le=SECONDS_MAX, description="the job as it was then (epoch seconds)")
]
SEARCH_MAX: Final = 200
Search = Annotated[
    str,
    Query(
        max_length=SEARCH_MAX,
        description="words, each in the id, a model, the suffix, tags or metadata of a job",
    ),
]
# any key, so FastAPI has no parameter for it
METADATA: Final = {
    "name": "metadata",
    "in": "query",
    "style": "deepObject",
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}
# texts of a job that are lists of words: `tags=a&tags=b`, jobs that have both
WORDS: Final = [
    {"name": name, "in": "query", "schema": {"type": "array", "items": {"type": "string"}}}
    for name in FILTERS
]
LIMIT: Final = 20
CHECKPOINTS_LIMIT: Final = 10
LIMIT_MAX: Final = 1_000
LINES_MAX: Final = 10_000
CHANGES_MAX: Final = 20_000  # of one job
SCANNED_MAX: Final = 5_000  # metadata is sealed, so a filter has to open that of each job
router = new_router("fine-tuning")


@router.get("/v1/fine_tuning/jobs", openapi_extra={"parameters": [METADATA, *WORDS]})
async def list_jobs(
    request: Request,
    deps: WithJobDeps,
    tenant: NamedTenant,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT,
    status: JobStatus | None = None,
    suffix: str | None = None,
    search: Search = "",
) -> Page[JobResponse]:
    """List jobs, newest first. Filters: `metadata[key]=value`, `metadata=null` (no metadata)."""
    where = {"tenant": tenant}
    query = request.query_params
    words = {name: query.getlist(name) for name in FILTERS if name in query}
    wanted = JobFilter(_metadata_filter(request), status, suffix, words, search)
    if wanted.is_empty:
        rows, more = await page(deps.views, JOBS, where, limit=limit, after=after)
    else:
        rows, more = await _list_filtered(deps, where, wanted, limit, after)
    return listing(Page[JobResponse], [await current_job(deps, row) for row in rows], more)


def _metadata_filter(request: Request) -> dict[str, str] | None:
    """The requested metadata; None: only jobs without metadata. Raises ApiError 400."""
    pairs = request.query_params.multi_items()
    whole = [value for name, value in pairs if name == "metadata"]
    if whole == ["null"]:
        return None
    if whole:
        raise invalid("Filter by metadata[key]=value, or metadata=null.", "metadata")
    return {
        name[len("metadata[") : -1]: value
        for name, value in pairs
        if name.startswith("metadata[") and name.endswith("]")
    }


async def _list_filtered(
    deps: JobDeps, where: Where, wanted: JobFilter, limit: int, after: str | None
) -> tuple[Sequence[JobRow], bool]:
    matching: list[JobRow] = []
    for _ in range(SCANNED_MAX // LIMIT_MAX):
        rows, more = await page(deps.views, JOBS, where, limit=LIMIT_MAX, after=after)
        for row in rows:
            if wanted.matches(row, deps.unseal):
                matching.append(row)
            if len(matching) > limit:
                return matching[:limit], True
        if not more:
            return matching, False
        after = rows[-1].id
    return matching, True


@router.get("/v1/fine_tuning/jobs/{job_id}")
async def retrieve_job(
    job_id: str, deps: WithJobDeps, caller: Caller, at: Moment = None
) -> JobResponse:
    row = await find(deps, caller, job_id)
    return await (current_job(deps, row) if at is None else _shown_at(deps, row, 1_000 * at + 999))


@router.post("/v1/fine_tuning/jobs/{job_id}/cancel")
async def cancel_job(job_id: str, deps: WithJobDeps, caller: Caller) -> JobResponse:
    return await _change(deps, caller, job_id, CancelJob(job_id=job_id))


@router.post("/v1/fine_tuning/jobs/{job_id}/pause")
async def pause_job(job_id: str, deps: WithJobDeps, caller: Caller) -> JobResponse:
    return await _change(deps, caller, job_id, PauseJob(job_id=job_id))


@router.post("/v1/fine_tuning/jobs/{job_id}/resume")
async def resume_job(job_id: str, deps: WithJobDeps, caller: Caller) -> JobResponse:
    return await _change(deps, caller, job_id, ResumeJob(job_id=job_id))


@router.get("/v1/fine_tuning/jobs/{job_id}/checkpoints")
async def list_checkpoints(
    job_id: str,
    deps: WithJobDeps,
    caller: Caller,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = CHECKPOINTS_LIMIT,
) -> Page[CheckpointResponse]:
    """List a job's checkpoints, newest first, with the metrics of their steps."""
    job = await find(deps, caller, job_id)
    where = {"tenant": caller.tenant, "job_id": job_id}
    rows, more = await page(deps.views, CHECKPOINTS, where, limit=limit, after=after)
    data = []
    for row in rows:
        step = await deps.views.first(STEPS, {**where, "step": row.step})
        data.append(checkpoint_response(row, job.spec.model_id, step))
    return listing(Page[CheckpointResponse], data, more)


@router.get("/v1/fine_tuning/jobs/{job_id}/cost")
async def job_cost(job_id: str, deps: WithJobDeps, caller: Caller) -> JobCostResponse:
    """List a job's usage slices and credits so far, and their sum."""
    row = await find(deps, caller, job_id)
    where = {"tenant": caller.tenant, "job_id": job_id}
    lines = await deps.views.page(USAGE, where, limit=LINES_MAX, descending=False)
    return cost_response(row, lines)


@router.get("/v1/fine_tuning/jobs/{job_id}/answers")
async def job_answers(job_id: str, deps: WithJobDeps, caller: Caller) -> AnswersResponse:
    """Prompts answered by the base model and by the adapter: those of `eval.prompts`, or six."""
    row = await find(deps, caller, job_id)
    if row.scores is None:
        raise ApiError(404, errors.NOT_FOUND, f"{job_id} has not been evaluated yet", "id")
    scores = row.scores
    content = json.loads(await within(deps.blobs.get(scores.blob, sha256=scores.sha256)))
    return AnswersResponse(data=content["answers"])


async def find(deps: JobDeps, caller: Principal, job_id: str) -> JobRow:
    """Raises ApiError 404."""
    return await find_job(deps, caller.tenant, job_id)


async def find_job(deps: JobDeps, tenant: str, job_id: str) -> JobRow:
    """Raises ApiError 404."""
    row = await deps.views.first(JOBS, {"tenant": tenant, "id": job_id})
    if row is None:
        raise ApiError(404, errors.NOT_FOUND, f"Could not find fine tune: {job_id}", "id")
    return row


async def current_job(deps: JobDeps, row: JobRow) -> JobResponse:
    """A job with its newest step or its expected start."""
    return job_response(row, deps.unseal, await current_moment(deps, row))


async def current_moment(deps: JobDeps, row: JobRow) -> JobMoment:
    """The newest step of a started job, why a waiting one waits, and how long it will take."""
    return JobMoment(
        at=deps.clock.now_ms(),
        step=await _newest_step(deps, row) if _has_steps(row) else None,
        outlook=await deps.queues.outlook_of(row),
        eval_ms=await deps.queues.eval_ms_of(row),
        earlier=await _earlier(deps, row),
    )


async def _earlier(deps: JobDeps, row: JobRow) -> JobRow | None:
    if row.spec.duplicate_of is None:
        return None
    return await deps.views.first(JOBS, {"tenant": row.tenant, "id": row.spec.duplicate_of})


async def _shown_at(deps: JobDeps, row: JobRow, at: Ms) -> JobResponse:
    """The job as it was at a moment. Raises ApiError 404 for one before its submission."""
    where = {"tenant": row.tenant, "job_id": row.id}
    changes = await deps.views.page(JOB_HISTORY, where, limit=CHANGES_MAX, descending=False)
    before = [change for change in changes if change.at <= at]
    past = row_at(before, row.tenant, row.id)
    if past is None and row.finished_at is not None and at >= row.created_at:
        if at >= row.finished_at:  # nothing has changed since
            return await current_job(deps, row)
        days = deps.settings.keep_history_days
        text = f"The states of {row.id} are no longer kept: {days} days after a job's end"
        raise ApiError(404, errors.NOT_FOUND, text, "at")
    if past is None:
        text = f"{row.id} did not exist yet at {at // 1_000}"
        raise ApiError(404, errors.NOT_FOUND, text, "at")
    step = await _newest_step(deps, past, at) if _has_steps(past) else None
    return job_response(past, deps.unseal, JobMoment(at=at, step=step))


def _has_steps(row: JobRow) -> bool:
    """Return whether a training of the job has ever begun, even if it ended or waits again."""
    return row.total_steps is not None


async def _newest_step(deps: JobDeps, row: JobRow, at: Ms | None = None) -> StepRow | None:
    where = {"tenant": row.tenant, "job_id": row.id}
    bound = None if at is None else step_event_id(at + 1, 0, 0)
    after = None if bound is None else Cursor(bound, bound)
    steps = await deps.views.page(STEPS, where, limit=1, after=after)
    return steps[0] if steps else None


async def _change(deps: JobDeps, caller: Principal, job_id: str, command: Message) -> JobResponse:
    await find(deps, caller, job_id)
    await deps.decide(caller, JOB, command)
    return await current_job(deps, await find(deps, caller, job_id))
