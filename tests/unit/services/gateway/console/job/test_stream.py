"""The stream of a job continues after its last frame, and ends with the job."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from httpx_sse import ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.gateway.console.calls import Calls, client_of
from services.gateway.console.job import stream
from tests.unit.services.gateway.console.consoles import console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import a_step, ready, submit

STEP = (
    '{"step": 1, "train_loss": 1, "valid_loss": null, "learning_rate": 1,'
    ' "tokens_per_second": 1, "peak_memory_bytes": 1}'
)


async def limited(_: Request) -> Response:
    return JSONResponse({"error": {"message": "Too many requests.", "code": "limit"}}, 429)


CALLS = Calls(client_of(Starlette(routes=[Route("/job/metrics", limited)])), "key")


async def panels() -> str:
    return "<p>panels</p>"


async def test_a_stream_continues_after_the_last_frame_and_ends_with_its_job(
    api: ControlPlane,
) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    tenant = client.headers["x-tenant"]
    path = f"/v1/fine_tuning/jobs/{job_id}"
    for step in (1, 2, 3):
        await api.telemetry(tenant, job_id, a_step(tenant, job_id, step))
    await api.until(client, f"{path}/metrics", lambda body: len(body["data"]) == 3)
    await client.post(f"{path}/cancel")
    await api.until(client, path, lambda body: body["finished_at"] is not None)
    metrics = (await client.get(f"{path}/metrics")).json()["data"]
    async with signed_in(console_of(api), key_of(client)) as browser:
        whole = (await browser.get(f"/console/jobs/{job_id}/stream")).text
        headers = {"last-event-id": metrics[1]["id"]}
        rest = (await browser.get(f"/console/jobs/{job_id}/stream", headers=headers)).text
    assert '"step":[1,2,3]' in whole
    assert f"id: {metrics[0]['id']}" in whole
    assert "event: curve" not in rest
    assert '"step":[3]' in rest
    for text in (whole, rest):
        assert "The job was cancelled" in text
        assert text.rstrip().endswith("event: ended\ndata: {}")


async def test_a_page_that_catches_up_gets_each_step_once_and_one_whole_curve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    curves: list[str] = []

    async def steps_of(_: Calls, path: str) -> list[dict[str, Any]]:
        curves.append(path)
        return [json.loads(STEP)]

    async def missed() -> AsyncIterator[ServerSentEvent]:
        for number in range(10_001):
            yield ServerSentEvent("step", STEP, str(number))

    monkeypatch.setattr(stream, "steps_of", steps_of)
    frames = [frame async for frame in stream._live(CALLS, "/job", panels, missed())]
    assert sum(frame.count(b"event: points") for frame in frames) == 10_000 // stream.BATCH_MAX
    assert curves == ["/job"]


async def test_a_stream_that_is_left_with_steps_unread_ends() -> None:
    async def many() -> AsyncIterator[ServerSentEvent]:
        while True:
            yield ServerSentEvent("step", STEP, "id")

    live = stream._live(CALLS, "/job", panels, many())
    await anext(live)
    await asyncio.sleep(0.05)  # until the queue is full again
    closing = asyncio.create_task(live.aclose())
    done, _ = await asyncio.wait((closing,), timeout=60)
    closing.cancel()
    assert done


async def test_steps_wait_for_a_slow_reader() -> None:
    sent = 0

    async def many() -> AsyncIterator[ServerSentEvent]:
        nonlocal sent
        while True:
            sent += 1
            yield ServerSentEvent("step", STEP, "id")

    live = stream._live(CALLS, "/job", panels, many())
    for _ in range(3):
        await anext(live)
        await asyncio.sleep(0.05)  # the reader is slow, and the steps are not
    await live.aclose()
    assert sent <= 4 * stream.BATCH_MAX + 2, "what it has read, a batch and a queue"


async def test_a_limit_that_the_first_read_reaches_is_sent_to_the_page() -> None:
    response = stream.stream(CALLS, "/job", None, panels)
    frames = [frame async for frame in response.body_iterator]
    refused = b'event: refused\ndata: {"message":"Too many requests."}\n\n'
    assert frames == [b"retry: 5000\n" + refused], "the page does not connect again at once"
