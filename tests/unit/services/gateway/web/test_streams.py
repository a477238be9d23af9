"""Streams are sent as they come, by servers between as well."""

from collections.abc import AsyncIterator

import httpx
from fastapi import FastAPI
from starlette.responses import StreamingResponse

from services.gateway.web.streams import DONE, stream_description, stream_response


async def test_frames_are_sent_unchanged_and_proxies_do_not_cache_them() -> None:
    async def frames() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        yield DONE

    app = FastAPI()

    @app.get("/", response_model=None, responses=stream_description(None, "frames"))
    async def show() -> StreamingResponse:
        return stream_response(frames())

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as api:
        response = await api.get("/")
    assert response.content == b"data: 1\n\ndata: [DONE]\n\n"
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    described = app.openapi()["paths"]["/"]["get"]["responses"]["200"]
    assert described["description"] == "frames"
    assert "text/event-stream" in described["content"]
