"""Responses that are streams of server-sent events, or one JSON value."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse

MEDIA_TYPE: Final = "text/event-stream"
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
DONE: Final = b"data: [DONE]\n\n"  # the last frame, as in OpenAI's API


def stream_description(model: Any, text: str) -> dict[int | str, dict[str, Any]]:
    """OpenAPI description of a response that is a model, or a stream of frames."""
    content = {MEDIA_TYPE: {"schema": {"type": "string"}}}
    return {200: {"model": model, "description": text, "content": content}}


def frame(data: Any) -> bytes:
    """One event without a name, as in OpenAI's API."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def event_frame(name: str | None, data: Any, position: str | None = None) -> bytes:
    """One event for a page: its name and id where it has them, and a text or a value."""
    text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    fields = [(key, value) for key, value in (("event", name), ("id", position)) if value]
    fields += [("data", line) for line in text.splitlines()]
    return "".join(f"{key}: {value}\n" for key, value in fields).encode() + b"\n"


def json_response(data: Any) -> Response:
    """The response with a value that needs no check."""
    return Response(msgspec.json.encode(data), media_type="application/json")


def stream_response(
    frames: AsyncIterator[bytes], headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """The response that sends each frame as it comes. headers: beside those of each stream."""
    return StreamingResponse(frames, media_type=MEDIA_TYPE, headers={**HEADERS, **(headers or {})})
