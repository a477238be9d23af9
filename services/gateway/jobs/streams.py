"""Server-sent events of a job, from `Last-Event-ID` on.

The id of a frame contains a position in every source of the stream, so no event is lost or sent
twice. `after` takes the id of an event, as in lists.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from starlette.responses import StreamingResponse

from schemas.units import Ms
from services.gateway.jobs.deps import JobDeps
from services.gateway.jobs.feeds import FeedSource, JobKey, Positions
from services.gateway.views.event_ids import EVENT_ID
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.domain.responses import Response
from services.gateway.web.streams import DONE, stream_description, stream_response
from tunery.runtime.store.abstract import StoreUnavailable
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.gateway")
HEARTBEAT_MS: Final[Ms] = 10_000
RETRY_MS: Final[Ms] = 2_000  # pause of a client before it connects again
KEY_MS: Final[Ms] = 5_000  # after this, a key is looked up again
BETWEEN: Final = "~"  # separates the positions in a frame's id
#: whether the key of the request may still be used
StillValid: TypeAlias = Callable[[], Awaitable[bool]]


def streams(model: Any) -> dict[int | str, dict[str, Any]]:
    """OpenAPI description of a response: a page, or a stream of its items."""
    text = "a page; with stream=true frames `event`, `id`, `data`, and `[DONE]` at the end"
    return stream_description(model, text)


def event_stream(
    deps: JobDeps,
    job: JobKey,
    name: str,
    sources: Sequence[FeedSource],
    positions: Positions,
    still_valid: StillValid,
    of_tenant_max: int,
) -> StreamingResponse:
    """The response to `stream=true`. name: event name of the frames. Raises ApiError 429."""
    deps.feeds.check_limit(job[0], of_tenant_max)
    return stream_response(_frames(deps, job, name, sources, positions, still_valid, of_tenant_max))


def positions_of(last_event_id: str | None, after: str | None, sources: int) -> Positions:
    """The positions after which a stream begins. Raises ApiError 400."""
    if last_event_id is None:
        return (after or "",) * sources
    positions = tuple(last_event_id.split(BETWEEN))
    if len(positions) == 1:
        positions *= sources  # the id of an event
    if len(positions) != sources or not all(map(_is_position, positions)):
        raise invalid("Send the id of the last frame as you got it.", "Last-Event-ID")
    return positions


def _is_position(text: str) -> bool:
    return text == "" or EVENT_ID.match(text) is not None


async def _frames(
    deps: JobDeps,
    job: JobKey,
    name: str,
    sources: Sequence[FeedSource],
    positions: Positions,
    still_valid: StillValid,
    of_tenant_max: int,
) -> AsyncIterator[bytes]:
    """Goes on when the database is away: the client ends it, the job, or the end of its key.

    No empty line without data before it: the SDK would take that for an event with nothing in it.
    """
    yield f"retry: {RETRY_MS}\n".encode()
    sent_ms = checked_ms = deps.clock.monotonic_ms()
    while True:
        try:
            async for batch in deps.feeds.follow(job, name, sources, positions, of_tenant_max):
                if deps.clock.monotonic_ms() - checked_ms >= KEY_MS:
                    if not await still_valid():
                        return  # a client that reconnects gets the reason
                    checked_ms = deps.clock.monotonic_ms()
                if batch:
                    positions = batch[-1].positions
                    yield b"".join(_frame(name, event.positions, event.body) for event in batch)
                elif deps.clock.monotonic_ms() - sent_ms >= HEARTBEAT_MS:
                    yield b": heartbeat\n"
                else:
                    continue
                sent_ms = deps.clock.monotonic_ms()
            yield DONE
            return
        except (StoreUnavailable, ApiError) as error:
            if isinstance(error, ApiError) and error.status == 429:
                return  # others of the tenant began at the same moment
            log_event(LOG, logging.WARNING, "stream.interrupted", why=error, job_id=job[1])
            yield b": the service is busy\n"
            await deps.clock.sleep(RETRY_MS)


def _frame(name: str, positions: Positions, body: Response) -> bytes:
    head = f"event: {name}\nid: {BETWEEN.join(positions)}\ndata: ".encode()
    return head + body.model_dump_json().encode() + b"\n\n"
