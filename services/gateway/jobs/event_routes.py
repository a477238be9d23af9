"""Events, metrics and log lines of a job, as pages (newest first) or as a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Header, Query
from starlette.responses import StreamingResponse

from services.gateway.accounts.auth import is_valid
from services.gateway.accounts.deps import limits_of
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain.event_responses import (
    JobEventResponse,
    LogLineResponse,
    MetricsResponse,
    log_line_response,
    message_response,
    metrics_response,
    step_line_response,
    step_response,
)
from services.gateway.jobs.feeds import FeedSource
from services.gateway.jobs.routes import find
from services.gateway.jobs.streams import event_stream, positions_of, streams
from services.gateway.views.event_ids import EVENT_ID
from services.gateway.views.ports import Cursor
from services.gateway.views.tables.jobs import JOB_EVENTS, LINES, STEPS, JobEventRow
from services.gateway.web.deps import Caller, Principal
from services.gateway.web.domain.errors import not_found
from services.gateway.web.domain.responses import ListItem, Page, listing
from services.gateway.web.pages import After
from services.gateway.web.routing import new_router

LIMIT: Final = 20
LIMIT_MAX: Final = 1_000
EVENT: Final = "fine_tuning.job.event"
METRICS: Final = "fine_tuning.job.metrics"
LINE: Final = "fine_tuning.job.log"
PREFIX: Final = "/v1/fine_tuning/jobs/{job_id}"
router = new_router("fine-tuning")


@dataclass(frozen=True)
class ListQuery:
    """Query and header parameters of these routes."""

    after: str | None
    limit: int
    stream: bool
    last_event_id: str | None


async def _list_query(
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT,
    stream: Annotated[bool, Query(description="server-sent events, oldest first")] = False,
    last_event_id: Annotated[
        str | None, Header(max_length=256, description="id of the last frame you have")
    ] = None,
) -> ListQuery:
    return ListQuery(after, limit, stream, last_event_id)


Part = Annotated[ListQuery, Depends(_list_query)]


@router.get(PREFIX + "/events", response_model=None, responses=streams(Page[JobEventResponse]))
async def list_events(
    job_id: str,
    deps: WithJobDeps,
    caller: Caller,
    asked: Part,
    kind: Annotated[
        Literal["message", "metrics"] | None, Query(alias="type", description="only these")
    ] = None,
) -> Page[Any] | StreamingResponse:
    """List a job's messages and steps, ordered by time."""

    def message(row: JobEventRow) -> JobEventResponse:
        return message_response(row, deps.unseal)

    by_type = {
        "message": FeedSource(JOB_EVENTS, message),
        "metrics": FeedSource(STEPS, step_response),
    }
    sources = tuple(by_type.values()) if kind is None else (by_type[kind],)
    return await _answer(deps, caller, job_id, EVENT, sources, asked)


@router.get(PREFIX + "/metrics", response_model=None, responses=streams(Page[MetricsResponse]))
async def list_metrics(
    job_id: str, deps: WithJobDeps, caller: Caller, asked: Part
) -> Page[Any] | StreamingResponse:
    """List a job's optimizer steps: losses, accuracy, learning rate, tokens."""
    return await _answer(
        deps, caller, job_id, METRICS, (FeedSource(STEPS, metrics_response),), asked
    )


@router.get(PREFIX + "/logs", response_model=None, responses=streams(Page[LogLineResponse]))
async def list_logs(
    job_id: str, deps: WithJobDeps, caller: Caller, asked: Part
) -> Page[Any] | StreamingResponse:
    """List the log lines of a job's training and evaluation: each step is one of them."""
    sources = (FeedSource(LINES, log_line_response), FeedSource(STEPS, step_line_response))
    return await _answer(deps, caller, job_id, LINE, sources, asked)


async def _answer(
    deps: JobDeps,
    caller: Principal,
    job_id: str,
    name: str,
    sources: Sequence[FeedSource],
    asked: ListQuery,
) -> Page[Any] | StreamingResponse:
    await find(deps, caller, job_id)
    if asked.after is not None and not EVENT_ID.match(asked.after):
        raise not_found("event", asked.after, "after")
    if asked.stream:
        positions = positions_of(asked.last_event_id, asked.after, len(sources))
        job = (caller.tenant, job_id)
        still_valid = partial(is_valid, deps, caller)
        most = (await limits_of(deps, caller.tenant)).streams_max
        return event_stream(deps, job, name, sources, positions, still_valid, most)
    where = {"tenant": caller.tenant, "job_id": job_id}
    cursor = None if asked.after is None else Cursor(asked.after, asked.after)
    items: list[ListItem] = []
    for source in sources:
        rows = await deps.views.page(source.table, where, limit=asked.limit + 1, after=cursor)
        items += map(source.shape, rows)
    items.sort(key=attrgetter("id"), reverse=True)
    return listing(Page[Any], items[: asked.limit], len(items) > asked.limit)
