"""One intent is one job, however often and at once it is sent."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.pool import RegisterNode, RetireNode
from services.gateway.jobs.submission import SUBMITTING_MAX
from simulator.control_plane.samples import node
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane
from tests.unit.services.gateway.jobs.test_node_routes import known, send
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tests.unit.services.gateway.storm import FAULTS, listed, quick_retries, storm


async def test_one_idempotency_key_makes_one_job(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    headers = {"idempotency-key": "once"}
    first = await submit(client, file_id, headers=headers)
    second = await submit(client, file_id, headers=headers)
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["idempotent-replayed"] == "true"
    other = await submit(client, file_id, seed=1, headers=headers)
    assert other.status_code == 409
    assert other.headers["x-should-retry"] == "false"
    assert other.json()["error"]["code"] == "idempotency_conflict"
    listed = (await client.get("/v1/fine_tuning/jobs")).json()
    assert len(listed["data"]) == 1


async def test_a_retry_of_the_sdk_is_the_same_job_and_a_second_request_is_not(
    api: ControlPlane,
) -> None:
    client, file_id = await ready(api)
    first = await submit(client, file_id)
    retry = await submit(client, file_id, headers={"x-stainless-retry-count": "1"})
    waiting = await submit(client, file_id)
    assert retry.json()["id"] == first.json()["id"]
    assert waiting.json()["id"] != first.json()["id"]


async def test_a_job_is_for_the_accelerators_of_the_live_nodes_or_else_of_known_ones() -> None:
    async with control_plane() as api:  # a pool in which no other test has nodes
        client, file_id = await ready(api)

        async def device() -> str:
            body = {"model": "tiny-llama", "training_file": file_id}
            return str(
                (await client.post("/v1/fine_tuning/jobs/estimate", json=body)).json()["device"]
            )

        assert await device() == "cpu"
        cpu = node("cpu", "a-1").node
        await send(api, RegisterNode(node=cpu))
        await send(api, RegisterNode(node=replace(cpu, node_id="gpu", device="cuda")))
        await known(api, "up", "gpu")
        assert await device() == "cuda"
        await send(api, RetireNode(node_id="gpu", incarnation="a-1"))
        await known(api, "retired", "gpu")
        assert await device() == "cpu"
        await send(api, RetireNode(node_id="cpu", incarnation="a-1"))
        await known(api, "retired", "cpu")
        assert await device() == "cuda"


async def test_each_intent_creates_one_job_over_a_faulty_network(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_retries(monkeypatch)
    limits = {"soft_gpu_ms": 10**12, "hard_gpu_ms": 10**12, "concurrency": 10_000}
    client = await api.tenant(limits=limits)
    file = await api.upload(client)
    await api.validated(client, file["id"])
    jobs, met = await storm(
        api.api._transport,
        "http://api/v1",
        client.headers["authorization"].removeprefix("Bearer "),
        {"model": "tiny-llama", "training_file": file["id"]},
        intents=40,
        seed=1,
        late_s=0.1,
    )
    assert all(met[fault] for fault in FAULTS), met
    assert len(set(jobs)) == 40
    assert sorted(await listed(client, "/v1")) == sorted(jobs)


async def test_many_submissions_take_turns(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, file_id = await ready(api)
    under_way: list[int] = []
    decide, now = api.deps.commands.decide, 0

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal now
        now += 1
        under_way.append(now)
        try:
            return await decide(*arguments, **options)
        finally:
            now -= 1

    monkeypatch.setattr(api.deps.commands, "decide", counted)
    submissions = [submit(client, file_id) for _ in range(3 * SUBMITTING_MAX)]
    answers = await asyncio.gather(*submissions)
    assert {item.status_code for item in answers} == {
        200,
        429,
    }  # a plan allows so many jobs at once
    # once one is refused, the others are refused without asking the decider
    assert SUBMITTING_MAX <= len(under_way) <= 3 * SUBMITTING_MAX
    assert max(under_way) <= SUBMITTING_MAX
