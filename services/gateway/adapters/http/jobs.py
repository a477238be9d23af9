"""`/v1/fine_tuning/jobs`: reading them, and changing what is wanted of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request

from schemas import errors
from schemas.envelope import Message
from schemas.job import CancelJob, PauseJob, ResumeJob
from schemas.topics import JOB
from services.gateway.adapters.http.deps import Caller, Deps, Principal, WithDeps
from services.gateway.adapters.http.pages import After, page
from services.gateway.adapters.http.storage import within
from services.gateway.domain.errors import ApiError
from services.gateway.domain.shapes import listing
from services.gateway.domain.shapes.jobs import checkpoint_object, cost_object, job_object
from services.gateway.domain.statuses import LIVE
from services.gateway.domain.tables import CHECKPOINTS, JOBS, STEPS, USAGE
from services.gateway.ports import Row

LIMIT: Final = 20
CHECKPOINTS_LIMIT: Final = 10
LIMIT_MAX: Final = 100
LINES_MAX: Final = 10_000
SCANNED_MAX: Final = 5_000  # metadata is sealed, so a filter on it opens job after job
router = APIRouter(tags=["fine-tuning"])


@router.get("/v1/fine_tuning/jobs")
async def list_jobs(
    request: Request,
    deps: WithDeps,
    caller: Caller,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT,
) -> dict[str, Any]:
    """`metadata[key]=value` filters, any number of them; `metadata=null`: jobs without."""
    where = {"tenant": caller.tenant}
    wanted = _metadata_filter(request)
    if wanted == {}:
        rows, more = await page(deps.views, JOBS, where, limit=limit, after=after)
    else:
        rows, more = await _filtered(deps, where, wanted, limit, after)
    return listing([await shown(deps, row) for row in rows], more)


def _metadata_filter(request: Request) -> dict[str, str] | None:
    """None: only jobs without metadata."""
    pairs = request.query_params.multi_items()
    if ("metadata", "null") in pairs:
        return None
    return {
        name[len("metadata[") : -1]: value
        for name, value in pairs
        if name.startswith("metadata[") and name.endswith("]")
    }


async def _filtered(
    deps: Deps, where: Row, wanted: Mapping[str, str] | None, limit: int, after: str | None
) -> tuple[Sequence[Row], bool]:
    found: list[Row] = []
    for _ in range(SCANNED_MAX // LIMIT_MAX):
        rows, more = await page(deps.views, JOBS, where, limit=LIMIT_MAX, after=after)
        for row in rows:
            if _matches(deps, row, wanted):
                found.append(row)
            if len(found) > limit:
                return found[:limit], True
        if not more:
            return found, False
        after = rows[-1]["id"]
    return found, True


def _matches(deps: Deps, row: Row, wanted: Mapping[str, str] | None) -> bool:
    text = deps.opened(row["metadata"])
    if wanted is None:
        return text is None
    try:
        held = msgspec.json.decode(text or "{}", type=dict[str, str])
    except msgspec.DecodeError:
        return False
    return wanted.items() <= held.items()


@router.get("/v1/fine_tuning/jobs/{job_id}")
async def retrieve_job(job_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    return await shown(deps, await find(deps, caller, job_id))


@router.post("/v1/fine_tuning/jobs/{job_id}/cancel")
async def cancel_job(job_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    return await _change(deps, caller, job_id, CancelJob(job_id=job_id))


@router.post("/v1/fine_tuning/jobs/{job_id}/pause")
async def pause_job(job_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    return await _change(deps, caller, job_id, PauseJob(job_id=job_id))


@router.post("/v1/fine_tuning/jobs/{job_id}/resume")
async def resume_job(job_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    return await _change(deps, caller, job_id, ResumeJob(job_id=job_id))


@router.get("/v1/fine_tuning/jobs/{job_id}/checkpoints")
async def list_checkpoints(
    job_id: str,
    deps: WithDeps,
    caller: Caller,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = CHECKPOINTS_LIMIT,
) -> dict[str, Any]:
    job = await find(deps, caller, job_id)
    where = {"tenant": caller.tenant, "job_id": job_id}
    rows, more = await page(deps.views, CHECKPOINTS, where, limit=limit, after=after)
    data = []
    for row in rows:
        step = await deps.views.one(STEPS, {**where, "step": row["step"]})
        data.append(checkpoint_object(row, job_id, job["spec"]["model_id"], step))
    return listing(data, more)


@router.get("/v1/fine_tuning/jobs/{job_id}/cost")
async def job_cost(job_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    """Every usage slice and credit so far."""
    row = await find(deps, caller, job_id)
    where = {"tenant": caller.tenant, "job_id": job_id}
    lines = await deps.views.page(USAGE, where, limit=LINES_MAX, descending=False)
    return cost_object(row, lines)


@router.get("/v1/fine_tuning/jobs/{job_id}/answers")
async def job_answers(job_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    """The evaluation's fixed prompts, answered by the base model and by the adapter."""
    row = await find(deps, caller, job_id)
    if row["scores"] is None:
        raise ApiError(404, errors.NOT_FOUND, f"{job_id} has not been evaluated yet", "id")
    scores = row["scores"]
    found = json.loads(await within(deps.blobs.get(scores["blob"], sha256=scores["sha256"])))
    return {"object": "list", "data": found["answers"]}


async def find(deps: Deps, caller: Principal, job_id: str) -> Row:
    """Raises ApiError 404."""
    row = await deps.views.one(JOBS, {"tenant": caller.tenant, "id": job_id})
    if row is None:
        raise ApiError(404, errors.NOT_FOUND, f"Could not find fine tune: {job_id}", "id")
    return row


async def shown(deps: Deps, row: Row) -> dict[str, Any]:
    """With the newest step where the job is past its start."""
    step = None
    if row["phase"] in LIVE or (row["phase"] == "queued" and row["total_steps"] is not None):
        where = {"tenant": row["tenant"], "job_id": row["id"]}
        found = await deps.views.page(STEPS, where, limit=1)
        step = found[0] if found else None
    return job_object(row, deps.opened, step)


async def _change(deps: Deps, caller: Principal, job_id: str, command: Message) -> dict[str, Any]:
    await find(deps, caller, job_id)
    actor = deps.seal.seal(caller.tenant, caller.key_id)
    await deps.commands.decide(JOB, caller.tenant, command, actor=actor)
    return await shown(deps, await find(deps, caller, job_id))
