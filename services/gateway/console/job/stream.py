"""A job's stream of events for its page: one connection, continued by `Last-Event-ID`.

Points of the curve come from the API's own stream of steps, whose positions are the ids here: so
none is lost or repeated after a broken connection. Panels are sent whole, and have no ids.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final

from httpx_sse import EventSource, ServerSentEvent
from starlette.responses import StreamingResponse

from services.gateway.console.calls import CallRefused, Calls, refusal_of
from services.gateway.console.job.curve import ADDED_MAX, columns, decimated, steps_of
from services.gateway.web.streams import event_frame, stream_response

EVERY_S: Final = 1.0  # steps that come in between are sent together
PANELS_S: Final = 2.0
BATCH_MAX: Final = 200
RETRY: Final = b"retry: 5000\n"  # ms, after which a page that was refused connects again
END: Final = "[DONE]"
Panels = Callable[[], Awaitable[str]]


def stream(api: Calls, path: str, last_event_id: str | None, panels: Panels) -> StreamingResponse:
    """Return the response. panels: renders the page's panels as they are now."""
    return stream_response(_frames(api, path, last_event_id, panels))


async def _frames(
    api: Calls, path: str, last_event_id: str | None, panels: Panels
) -> AsyncIterator[bytes]:
    position = last_event_id
    try:
        if not position:
            steps = await steps_of(api, path)
            position = steps[-1]["id"] if steps else None
            yield event_frame("curve", columns(decimated(steps)), position)
        headers = {"last-event-id": position} if position else {}
        options: Any = {"params": {"stream": "true"}, "headers": headers}
        async with api.stream("GET", f"{path}/metrics", **options) as response:
            if not response.is_success:
                await response.aread()
                raise refusal_of(response)
            live = _live(api, path, panels, EventSource(response).aiter_sse())
            async with aclosing(live):
                async for frame in live:
                    yield frame
    except CallRefused as refusal:
        # the key was revoked, or there were too many calls: the page connects again
        yield RETRY + event_frame("refused", {"message": refusal.message})


async def _live(
    api: Calls, path: str, panels: Panels, events: AsyncIterator[ServerSentEvent]
) -> AsyncGenerator[bytes, None]:
    """Frames until the job has ended: new points every second, panels when they have changed."""
    waiting: asyncio.Queue[ServerSentEvent | None] = asyncio.Queue(BATCH_MAX)
    reader = asyncio.create_task(_read(events, waiting))
    clock, added, shown, due_s, is_open = asyncio.get_running_loop(), 0, "", 0.0, True
    try:
        while is_open:
            batch = await _batch(waiting)
            is_open = None not in batch
            steps = [json.loads(event.data) for event in batch if event and event.data != END]
            ids = [event.id for event in batch if event and event.data != END]
            added += len(steps)
            # a full batch has more behind it: the curve is drawn anew once the page is up to date
            if steps and (added <= ADDED_MAX or len(batch) == BATCH_MAX):
                yield event_frame("points", columns(steps), ids[-1])
            elif steps:
                added = 0
                yield event_frame("curve", columns(decimated(await steps_of(api, path))), ids[-1])
            if clock.time() >= due_s or not is_open:
                due_s = clock.time() + PANELS_S
                now = await panels()
                api.requests.clear()  # those of the stream are the page's own, again and again
                if now != shown:
                    shown = now
                    yield event_frame(None, now)
        if any(event and event.data == END for event in batch):
            yield event_frame("ended", {})
    finally:
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


async def _read(
    events: AsyncIterator[ServerSentEvent], waiting: asyncio.Queue[ServerSentEvent | None]
) -> None:
    """Pass the API's events on; at their end or failure, None."""
    try:
        async for event in events:
            if event.data:
                await waiting.put(event)
    except Exception:  # not a cancellation: nothing reads the queue then, which may be full
        await waiting.put(None)
        raise
    await waiting.put(None)


async def _batch(
    waiting: asyncio.Queue[ServerSentEvent | None],
) -> list[ServerSentEvent | None]:
    """Return the events that come within EVERY_S, which may be none."""
    clock, batch = asyncio.get_running_loop(), list[ServerSentEvent | None]()
    until_s = clock.time() + EVERY_S
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until_s):
            while len(batch) < BATCH_MAX and None not in batch:
                batch.append(await waiting.get())
    return batch
