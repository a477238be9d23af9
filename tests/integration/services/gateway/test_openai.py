"""The unmodified OpenAI SDK against real services over real servers."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable
from typing import Any

import httpx
import openai
import pytest

from tests.integration.services.gateway.control_plane import ROWS, admin
from tunery.local.stack import Stack

VALIDATION_S_MAX = 240
FAIL_FAST_S_MAX = 90  # a few seconds, of the gateway's own limits, where nothing else runs
RECOVERY_S_MAX = 180


def sdk(plane: Stack, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{plane.api_url}/v1", api_key=plane.admin_key, **options)


async def upload_rows(client: openai.AsyncOpenAI) -> str:
    body = "\n".join(json.dumps(row) for row in ROWS).encode()
    file = await client.files.create(file=("rows.jsonl", body), purpose="fine-tune")
    async with asyncio.timeout(VALIDATION_S_MAX):
        checked = await client.files.wait_for_processing(file.id, poll_interval=0.1)
    return checked.id


async def test_the_sdk_uploads_submits_follows_and_cancels(running: Stack) -> None:
    async with sdk(running) as client:
        file_id = await upload_rows(client)
        assert (await client.files.retrieve(file_id)).status == "processed"
        content = await client.files.content(file_id)
        assert len(content.content.splitlines()) == len(ROWS)
        job = await client.fine_tuning.jobs.create(
            model="tiny",
            training_file=file_id,
            suffix="sums",
            seed=3,
            method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 2}}},
            metadata={"team": "a"},
            extra_body={"lora": {"rank": 4}},
        )
        assert job.status in ("validating_files", "queued")
        assert job.organization_id == "local"
        async with asyncio.timeout(VALIDATION_S_MAX):
            while job.status != "queued":
                await asyncio.sleep(0.1)
                job = await client.fine_tuning.jobs.retrieve(job.id)
        events = [event async for event in client.fine_tuning.jobs.list_events(job.id, limit=2)]
        assert events[-1].message == f"Created fine-tuning job: {job.id}"
        assert events[0].message == "Files validated, moving job to queued state"
        paused = await client.fine_tuning.jobs.pause(job.id)
        assert str(paused.status) == "paused"
        await client.fine_tuning.jobs.resume(job.id)
        cancelled = await client.fine_tuning.jobs.cancel(job.id)
        assert cancelled.status == "cancelled"
        jobs = [item.id async for item in client.fine_tuning.jobs.list(metadata={"team": "a"})]
        assert jobs == [job.id]
        models = [item.id async for item in client.models.list()]
        assert "tiny" in models


async def test_a_large_file_is_stored_unchanged(running: Stack) -> None:
    """The file needs several parts in object storage. Its rows need not be valid."""
    body = b"no json at all, whatever the row says\n" * 300_000
    async with sdk(running, timeout=120) as client:
        file = await client.files.create(file=("large.jsonl", body), purpose="fine-tune")
        assert file.bytes == len(body)
        assert file.model_extra is not None
        assert file.model_extra["sha256"] == hashlib.sha256(body).hexdigest()
        content = await client.files.content(file.id)
        assert content.content == body
        await client.files.delete(file.id)
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(file.id)


async def test_an_upload_in_parts_survives_a_kill_of_the_gateway(running: Stack) -> None:
    """kill -9 between two parts; the MD5 and SHA-256 of the whole file are right."""
    halves = (b'{"prompt": "a", "completion": "b"}\n' * 1_000, b"\xff" * 3_000_000)
    whole = b"".join(halves)
    async with sdk(running, max_retries=5) as client:
        upload = await client.uploads.create(
            bytes=len(whole), filename="rows.jsonl", mime_type="text/plain", purpose="fine-tune"
        )
        first = await client.uploads.parts.create(upload.id, data=halves[0])
        running.kill("gateway")
        await running.await_ready("gateway")
        second = await client.uploads.parts.create(upload.id, data=halves[1])
        done = await client.uploads.complete(
            upload.id,
            part_ids=[first.id, second.id],
            md5=hashlib.md5(whole, usedforsecurity=False).hexdigest(),
        )
        assert done.file is not None
        assert done.file.model_extra is not None
        assert done.file.model_extra["sha256"] == hashlib.sha256(whole).hexdigest()
        content = await client.files.content(done.file.id)
        assert content.content == whole
        await client.files.delete(done.file.id)


async def test_errors_arrive_with_code_and_param(running: Stack) -> None:
    async with sdk(running) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.fine_tuning.jobs.retrieve("ftjob-nothing")
        assert missing.value.code == "not_found"
        assert missing.value.request_id is not None
        with pytest.raises(openai.BadRequestError) as bad:
            await client.fine_tuning.jobs.create(
                model="tiny", training_file="file-x", hyperparameters={"n_epochs": 100}
            )
        assert bad.value.param == "hyperparameters.n_epochs"
    wrong = openai.AsyncOpenAI(base_url=f"{running.api_url}/v1", api_key="wrong")
    async with wrong:
        with pytest.raises(openai.AuthenticationError):
            await wrong.files.list()


async def test_concurrent_requests_with_one_idempotency_key_create_one_job(running: Stack) -> None:
    async with sdk(running) as client:
        file_id = await upload_rows(client)
        headers = {"Idempotency-Key": "all-at-once"}
        jobs = await asyncio.gather(
            *(
                client.fine_tuning.jobs.create(
                    model="tiny", training_file=file_id, extra_headers=headers
                )
                for _ in range(12)
            )
        )
        assert len({job.id for job in jobs}) == 1
        await client.fine_tuning.jobs.cancel(jobs[0].id)


async def test_webhook_endpoints_through_the_sdk(running: Stack) -> None:
    async with admin(running) as api:
        body = {
            "name": "ci",
            "url": "https://example.com/hook",
            "event_types": ["fine_tuning.job.succeeded"],
        }
        hook = (await api.post("/v1/webhook_endpoints", json=body)).json()
        assert hook["signing_secret"].startswith("whsec_")
        shown = (await api.get(f"/v1/webhook_endpoints/{hook['id']}")).json()
        assert "signing_secret" not in shown
        gone = await api.delete(f"/v1/webhook_endpoints/{hook['id']}")
        assert gone.json()["object"] == "webhook_endpoint.deleted"


async def test_requests_during_an_outage_fail_fast_with_503_until_it_ends(running: Stack) -> None:
    """PostgreSQL is stopped, Kafka is paused, object storage is stopped and then paused."""
    endpoint = {"url": "https://example.com/", "event_types": ["fine_tuning.job.failed"]}

    async def pause(name: str) -> None:
        running.pause(name)

    async def resume(name: str) -> None:
        running.resume(name)

    async with admin(running) as api:
        await running.stop("postgres")
        await assert_fails_fast(api.get("/v1/files"))
        assert (await api.get("/healthz")).status_code == 200
        assert (await api.get("/readyz")).json()["database"] == "away"
        await running.start("postgres")
        await ready(api)
        running.pause("kafka")
        await assert_fails_fast(api.post("/v1/webhook_endpoints", json=endpoint))
        running.resume("kafka")
        await ready(api)
        for stop, start in ((running.stop, running.start), (pause, resume)):
            await stop("s3")
            file = {"file": ("a.jsonl", b"{}")}
            upload = api.post("/v1/files", data={"purpose": "fine-tune"}, files=file)
            await assert_fails_fast(upload)
            await start("s3")
            await ready(api)
        assert (await api.get("/v1/files")).status_code == 200


async def assert_fails_fast(request: Awaitable[httpx.Response]) -> None:
    async with asyncio.timeout(FAIL_FAST_S_MAX):
        answer = await request
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1


async def ready(api: httpx.AsyncClient) -> None:
    for _ in range(RECOVERY_S_MAX * 5):
        if (await api.get("/readyz")).status_code == 200:
            return
        await asyncio.sleep(0.2)
    pytest.fail(f"not ready again after {RECOVERY_S_MAX} s")
