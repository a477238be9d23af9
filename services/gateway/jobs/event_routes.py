"""What a job says of itself: events, metrics, log lines. As pages, newest first, or as a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import StreamingResponse

from services.gateway.jobs.event_ids import (
    EVENT_ID,
    line_object,
    message_event,
    metrics_object,
    step_event,
)
from services.gateway.jobs.feeds import Source
from services.gateway.jobs.routes import find
from services.gateway.jobs.streams import event_stream, positions_of, streams
from services.gateway.ports import Cursor
from services.gateway.views.tables import JOB_EVENTS, LINES, STEPS
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.documents import JobEvent, LogLine, Metrics, Page
from services.gateway.web.errors import not_found
from services.gateway.web.pages import After
from services.gateway.web.responses import Row, listing

LIMIT: Final = 20
LIMIT_MAX: Final = 1_000
EVENT: Final = "fine_tuning.job.event"
METRICS: Final = "fine_tuning.job.metrics"
LINE: Final = "fine_tuning.job.log"
PREFIX: Final = "/v1/fine_tuning/jobs/{job_id}"
router = APIRouter(tags=["fine-tuning"])


@dataclass
class Asked:
    """Which part of a list, and how."""

    after: After = None
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT
    stream: Annotated[bool, Query(description="server-sent events, oldest first")] = False
    last_event_id: Annotated[
        str | None, Header(max_length=256, description="id of the last frame you have")
    ] = None


Part = Annotated[Asked, Depends()]


@router.get(PREFIX + "/events", response_model=None, responses=streams(Page[JobEvent]))
async def list_events(
    job_id: str, deps: WithDeps, caller: Caller, asked: Part
) -> dict[str, Any] | StreamingResponse:
    """Messages of the journal and steps of the telemetry, in one order."""

    def message(row: Row) -> dict[str, Any]:
        return message_event(row, deps.opened(row["sealed"]))

    sources = (Source(JOB_EVENTS, message), Source(STEPS, step_event))
    return await _answer(deps, caller, job_id, EVENT, sources, asked)


@router.get(PREFIX + "/metrics", response_model=None, responses=streams(Page[Metrics]))
async def list_metrics(
    job_id: str, deps: WithDeps, caller: Caller, asked: Part
) -> dict[str, Any] | StreamingResponse:
    """Every optimizer step: losses, accuracy, learning rate, tokens."""
    return await _answer(deps, caller, job_id, METRICS, (Source(STEPS, metrics_object),), asked)


@router.get(PREFIX + "/logs", response_model=None, responses=streams(Page[LogLine]))
async def list_logs(
    job_id: str, deps: WithDeps, caller: Caller, asked: Part
) -> dict[str, Any] | StreamingResponse:
    """What the training and the evaluation say while they run."""
    return await _answer(deps, caller, job_id, LINE, (Source(LINES, line_object),), asked)


async def _answer(
    deps: Deps,
    caller: Principal,
    job_id: str,
    name: str,
    sources: Sequence[Source],
    asked: Asked,
) -> dict[str, Any] | StreamingResponse:
    await find(deps, caller, job_id)
    if asked.after is not None and not EVENT_ID.match(asked.after):
        raise not_found("event", asked.after, "after")
    if asked.stream:
        positions = positions_of(asked.last_event_id, asked.after, len(sources))
        return event_stream(deps, (caller.tenant, job_id), name, sources, positions)
    where = {"tenant": caller.tenant, "job_id": job_id}
    cursor = None if asked.after is None else Cursor(asked.after, asked.after)
    found: list[dict[str, Any]] = []
    for source in sources:
        rows = await deps.views.page(source.table, where, limit=asked.limit + 1, after=cursor)
        found += (dict(source.shape(row)) for row in rows)
    found.sort(key=lambda one: str(one["id"]), reverse=True)
    return listing(found[: asked.limit], len(found) > asked.limit)
