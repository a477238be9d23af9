"""Events, metrics and log lines of a job: as pages and as streams that end with the job."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest

from schemas.telemetry import LogLine, Progress
from services.gateway.accounts.auth import authenticate, is_valid
from services.gateway.jobs import streams
from services.gateway.jobs.feeds import FeedEvent
from services.gateway.web.domain.responses import ListItem
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import a_step, ready, submit
from tunery.runtime.store.abstract import StoreUnavailable

Frame = dict[str, str]


async def finished(api: ControlPlane) -> tuple[httpx.AsyncClient, str]:
    """The path of a cancelled job with three steps and two log lines."""
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    tenant, path = client.headers["x-tenant"], f"/v1/fine_tuning/jobs/{job_id}"
    for step in (1, 2, 3):
        await api.telemetry(tenant, job_id, a_step(tenant, job_id, step))
    at = {"tenant": tenant, "job_id": job_id, "attempt": 1}
    await api.telemetry(tenant, job_id, LogLine(**at, level="warn", text="loss \0spike"))
    await api.telemetry(tenant, job_id, Progress(**at, stage="scoring", done_ppm=500_000))
    await api.until(client, f"{path}/logs", lambda body: len(body["data"]) == 5)
    await client.post(f"{path}/cancel")
    await api.until(client, path, lambda body: body["finished_at"] is not None)
    return client, path


async def streamed(client: httpx.AsyncClient, url: str, **options: Any) -> list[Frame]:
    answer = await client.get(url, params={"stream": "true"}, **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *frames, done, rest = answer.text.split("\n\n")
    assert (done.removeprefix("retry: 2000\n"), rest) == ("data: [DONE]", "")
    fields = [dict(line.split(": ", 1) for line in frame.splitlines()) for frame in frames]
    return [item for item in fields if "data" in item]


def ids(frames: list[Frame]) -> list[str]:
    return [msgspec.json.decode(frame["data"])["id"] for frame in frames]


async def test_a_stream_has_what_the_pages_have_oldest_first(api: ControlPlane) -> None:
    client, path = await finished(api)
    for kind in ("events", "metrics", "logs"):
        page = (await client.get(f"{path}/{kind}", params={"limit": 1_000})).json()
        frames = await streamed(client, f"{path}/{kind}")
        assert ids(frames) == [item["id"] for item in reversed(page["data"])]
        assert {frame["event"] for frame in frames} == {page["data"][0]["object"]}
    events = await streamed(client, f"{path}/events")
    assert "Created fine-tuning job" in events[0]["data"]
    assert "The job was cancelled" in events[-1]["data"]


async def test_a_stream_goes_on_after_the_last_frame(api: ControlPlane) -> None:
    client, path = await finished(api)
    for kind in ("events", "metrics"):
        frames = await streamed(client, f"{path}/{kind}")
        for number, frame in enumerate(frames):
            headers = {"last-event-id": frame["id"]}
            rest = await streamed(client, f"{path}/{kind}", headers=headers)
            assert ids(rest) == ids(frames)[number + 1 :]


class Fed:
    """`Feeds` with an outage, and pauses before and after its one event."""

    def check_limit(self, tenant: str, of_tenant_max: int) -> None:
        pass

    def __init__(self) -> None:
        self.tries = 0

    async def follow(self, *_: Any) -> AsyncIterator[list[FeedEvent]]:
        self.tries += 1
        if self.tries == 2:
            raise StoreUnavailable("away")
        yield []
        yield [FeedEvent("1", ListItem(id="1"), (str(self.tries),))]
        yield []
        if self.tries == 1:
            raise StoreUnavailable("away")


async def valid() -> bool:
    return True


class Endless:
    """`Feeds` of a job that never ends."""

    def check_limit(self, tenant: str, of_tenant_max: int) -> None:
        pass

    async def follow(self, *_: Any) -> AsyncIterator[list[FeedEvent]]:
        while True:
            yield []


async def test_security_m5_a_stream_ends_with_its_key(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream went on after the revocation, for as long as the job."""
    monkeypatch.setattr(streams, "KEY_MS", 0)
    tenant = await api.tenant()
    secret = tenant.headers["authorization"].removeprefix("Bearer ")
    caller = await authenticate(api.deps, f"Bearer {secret}")
    deps: Any = SimpleNamespace(clock=api.deps.clock, feeds=Endless())
    lookups = 0

    async def still_valid() -> bool:
        nonlocal lookups
        lookups += 1
        if lookups == 3:
            (key,) = (await tenant.get("/v1/keys")).json()["data"]
            assert (await tenant.delete(f"/v1/keys/{key['id']}")).status_code == 200
        return await is_valid(api.deps, caller)

    answer = streams.event_stream(deps, ("acme", "ftjob-1"), "k", (), (), still_valid, 9)
    async with asyncio.timeout(180):
        chunks: list[Any] = [chunk async for chunk in answer.body_iterator]
    assert lookups == 3
    assert b"[DONE]" not in b"".join(chunks)  # so a client connects again, to a 401
    assert (await tenant.get("/v1/files")).status_code == 401


async def test_the_sdk_ignores_comment_lines_of_pauses_and_outages(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_MS", 0)
    monkeypatch.setattr(streams, "RETRY_MS", 1)
    deps: Any = SimpleNamespace(clock=api.deps.clock, feeds=Fed())
    answer = streams.event_stream(deps, ("acme", "ftjob-1"), "k", (), (), valid, 9)
    chunks: list[Any] = [chunk async for chunk in answer.body_iterator]
    text = b"".join(chunks)
    assert text.count(b": heartbeat") == 4
    assert text.count(b": the service is busy") == 2
    from openai._streaming import SSEDecoder  # a second of import, for few tests

    body = list(SSEDecoder().iter_bytes(iter([text])))
    assert [item.data for item in body] == ['{"id":"1"}', '{"id":"1"}', "[DONE]"]
    assert [item.id for item in body][:2] == ["1", "3"]


async def test_first_hour_11_the_logs_hold_the_training(api: ControlPlane) -> None:
    """There were 26 lines, and all of them were of the evaluation."""
    client, path = await finished(api)
    lines = (await client.get(f"{path}/logs")).json()["data"]
    steps = [line["message"] for line in lines if line["message"].startswith("training: ")]
    assert [text.partition(",")[0] for text in steps] == [
        f"training: step {step} of 9" for step in (3, 2, 1)
    ]
    assert "loss " in steps[0]
    frames = await streamed(client, f"{path}/logs")
    messages = [msgspec.json.decode(frame["data"])["message"] for frame in frames]
    assert sorted(messages) == sorted(line["message"] for line in lines)


async def test_log_lines_can_be_listed(api: ControlPlane) -> None:
    client, path = await finished(api)
    lines = (await client.get(f"{path}/logs")).json()["data"]
    own = [item for item in lines if not item["message"].startswith("training: ")]
    assert [item["message"] for item in own] == ["evaluation: scoring, 50 %", "loss spike"]
    assert [item["level"] for item in own] == ["info", "warn"]
    metrics = (await client.get(f"{path}/metrics", params={"limit": 1})).json()
    assert metrics["has_more"] is True
    (newest,) = metrics["data"]
    assert (newest["step"], newest["tokens"], newest["learning_rate"]) == (3, 300, 1e-4)


@pytest.mark.parametrize("wrong", ["x", "ftevent-1", "~~", "é"])
async def test_a_malformed_last_event_id_answers_400(api: ControlPlane, wrong: str) -> None:
    client, path = await finished(api)
    headers = {b"last-event-id": wrong.encode()}
    answer = await client.get(f"{path}/events", params={"stream": "true"}, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "Last-Event-ID"


async def test_another_tenant_cannot_follow_a_job(api: ControlPlane) -> None:
    _, path = await finished(api)
    other = await api.tenant()
    for kind in ("events", "metrics", "logs"):
        answer = await other.get(f"{path}/{kind}", params={"stream": "true"})
        assert answer.status_code == 404
