"""Serving pools over HTTP: what is wanted, which replicas there are, and who answers."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.node import NodeDescription
from schemas.pool import ConfirmFreed, RegisterNode, ReportExit, ReportStarted, Token
from schemas.topics import POOL
from schemas.training import AttemptStart
from services.engine.host import EngineHost
from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.gateway.views.tables.jobs import SEATS
from services.trainer.effect.replica_relay import SOCKET, ReplicaRelay
from tests.unit.services.engine.memory_engine import MemoryEngine
from tests.unit.services.gateway.bases import BASE
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane
from tests.unit.services.gateway.models.test_routes import version
from tunery.work.replica import encode_endpoint

POOLS = "/v1/serving_pools"
ASKED: list[Any] = [{"role": "user", "content": "one two three"}]


@dataclass
class Node:
    """A node of the pool, and the replicas that a test lets it run."""

    api: ControlPlane
    name: str
    folder: Path

    async def register(self) -> None:
        described = NodeDescription(
            node_id=self.name, incarnation="a1", slots=1, device="cpu", memory_bytes=1 << 40
        )
        await self.api.send(POOL, "", RegisterNode(node=described), key="default")

    @asynccontextmanager
    async def replica(self, term_id: str, tenant: str) -> AsyncIterator[int]:
        """Answer for a term that this node has, whose lease is told."""
        seat = await self._seat(term_id)
        engine = MemoryEngine()
        models = LoadedModels(engine, engine, models_max=2, answers_max=4)
        folder = self.folder / term_id
        folder.mkdir(parents=True)
        host = EngineHost(models, folder / SOCKET, AnswerMeter(folder / "answers"))
        running = asyncio.create_task(host.run())
        await host.ready()
        relay = ReplicaRelay("127.0.0.1", "127.0.0.1")
        endpoint = await relay.open(folder, datetime.datetime.now(datetime.UTC))
        sealed = self.api.runtime.seal.seal(tenant, encode_endpoint(endpoint), "endpoint")
        start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=0, endpoint=sealed)
        started = ReportStarted(
            token=Token(pool="default", lease=seat), incarnation="a1", start=start
        )
        await self.api.send(POOL, "", started, key="default")
        try:
            yield seat
        finally:
            await relay.close()
            running.cancel()
            await asyncio.wait((running,))

    async def _seat(self, term_id: str) -> int:
        """The number of the term's lease, once it has its slot here."""
        where = {"job_id": term_id, "node_id": self.name}
        async with asyncio.timeout(180):
            while True:
                seat = await self.api.deps.views.first(SEATS, where)
                if seat is not None:
                    return seat.lease
                await asyncio.sleep(0.01)

    async def free(self, lease: int) -> None:
        """The process of a lease has stopped as it was told to."""
        token = Token(pool="default", lease=lease)
        gone = ReportExit(token=token, incarnation="a1", outcome="preempted", elapsed_ms=5)
        freed = ConfirmFreed(token=token, node_id=self.name, incarnation="a1")
        for fact in (gone, freed):
            await self.api.send(POOL, "", fact, key="default")


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as api:  # a pool in which no other test has nodes
        yield api


async def when(
    api: ControlPlane, client: httpx.AsyncClient, name: str, holds: Callable[[Any], bool]
) -> dict[str, Any]:
    return await api.until(client, f"{POOLS}/{name}", holds)


async def created(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post(POOLS, json={"model": BASE.base_id, **body})
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def chat(client: httpx.AsyncClient, model: str, user: str = "u") -> httpx.Response:
    body = {"model": model, "messages": ASKED, "user": user}
    return await client.post("/v1/chat/completions", json=body)


async def test_replicas_answer_for_a_deployment_until_they_are_gone(
    plane: ControlPlane, tmp_path: Path
) -> None:
    client = await plane.tenant()
    tenant = client.headers["x-tenant"]
    model = await version(plane, client, "one")
    node, other = Node(plane, "a", tmp_path / "a"), Node(plane, "b", tmp_path / "b")
    await node.register()
    name = (await created(client))["id"]
    shown = await when(plane, client, name, lambda pool: bool(pool["terms"]))
    deployed = await client.post(
        f"/v1/models/{model}/deploy", json={"stage": "production", "serving_pool": name}
    )
    assert deployed.json()["serving_pool"] == name
    stage = deployed.json()["id"]
    early = await chat(client, stage)
    assert (early.status_code, early.headers["retry-after"]) == (503, "5")
    (term,) = shown["terms"]
    async with node.replica(term["id"], tenant) as lease:
        shown = await when(plane, client, name, lambda pool: pool["ready"] == 1)
        assert shown["terms"][0]["node"] == "a"
        answered = await chat(client, stage)
        assert answered.status_code == 200, answered.text
        assert (await chat(client, model)).json()["choices"][0]["message"]["content"] == "Hello"
        health = (await client.get(f"/v1/deployments/{stage}")).json()["versions"][0]["health"]
        assert health["state"] == "ready"

        await other.register()
        answer = await client.post(f"{POOLS}/{name}", json={"replicas": 2})
        assert answer.json()["replicas"] == 2
        shown = await when(plane, client, name, lambda pool: len(pool["terms"]) == 2)
        (added,) = (each["id"] for each in shown["terms"] if each["id"] != term["id"])
        async with other.replica(added, tenant):
            await when(plane, client, name, lambda pool: pool["ready"] == 2)
            users = [f"user-{number}" for number in range(8)]
            assert {(await chat(client, stage, user)).status_code for user in users} == {200}
        # its node is gone, but not yet reported as lost: the other one is asked
        assert {(await chat(client, stage, user)).status_code for user in users} == {200}
        kept = await client.delete(f"{POOLS}/{name}")
        assert (kept.status_code, stage in kept.json()["error"]["message"]) == (409, True)
        assert (await chat(client, stage)).status_code == 200
        elsewhere = await client.post(f"/v1/models/{model}/deploy", json={"stage": "production"})
        assert elsewhere.json()["serving_pool"] == "local"
        assert (await client.delete(f"{POOLS}/{name}")).json()["deleted"]
        assert (await chat(client, stage)).status_code == 200
        await node.free(lease)
    assert (await client.get(POOLS)).json()["data"] == []


async def test_bad_input_pools_that_cannot_be(plane: ControlPlane) -> None:
    client, stranger = await plane.tenant(), await plane.tenant()
    assert (await client.post(POOLS, json={"model": "none"})).status_code == 404
    for body in ({"replicas": 33}, {"replicas": -1}, {"slots": 0}, {"term_minutes": 1}):
        answer = await client.post(POOLS, json={"model": BASE.base_id, **body})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(body)))
    name = (await created(client, replicas=0))["id"]
    assert (await client.get(POOLS)).json()["data"][0]["terms"] == []
    for method in ("GET", "DELETE"):
        assert (await stranger.request(method, f"{POOLS}/{name}")).status_code == 404
    changed = await stranger.post(f"{POOLS}/{name}", json={"replicas": 1})
    assert changed.status_code == 404
    model = await version(plane, stranger, "one")
    deploy = f"/v1/models/{model}/deploy"
    answer = await stranger.post(deploy, json={"stage": "production", "serving_pool": name})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "serving_pool")


async def test_a_serving_pool_shows_why_no_replica_begins(plane: ControlPlane) -> None:
    client = await plane.tenant(
        limits={"soft_gpu_ms": 5_400_000, "hard_gpu_ms": 5_400_000, "concurrency": 2}
    )
    name = (await created(client, replicas=1))["id"]
    refused = await client.post(f"{POOLS}/{name}", json={"replicas": 2})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "hard_limit_exceeded")
    shown = await when(plane, client, name, lambda pool: bool(pool["terms"]))
    assert (shown["replicas"], shown["stalled"], shown["ready"]) == (1, None, 0)
