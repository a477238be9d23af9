"""Replicas from the route to the answer: real agents and processes, with the log in memory."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.topics import POOL, STREAMS
from schemas.training import BlobFile
from services.gateway.views.tables.models import BASES
from services.scheduler.react import react_pool
from services.scheduler.watch import Watcher
from services.trainer import app
from services.trainer.ports import Hardware
from tests.bases import tiny_base
from tests.unit.services.engine.adapters import tiny_models
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane
from tests.unit.services.gateway.models.test_routes import version
from tests.unit.services.trainer.effect.machines import running
from tunery.runtime.hosts.reactor import Reactor

pytestmark = [
    *(pytest.mark.train, pytest.mark.timeout(900)),
    pytest.mark.soak,  # tests/e2e/test_serving_pools.py kills the node of a replica
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]

POOLS = "/v1/serving_pools"
READY_S_MAX = 480.0
MODULE = "services.engine.replica"


@pytest.fixture
async def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControlPlane]:
    """A control plane with two agents, whose replicas are real processes."""
    monkeypatch.setattr(app, "probe", lambda: Hardware("cpu", 1 << 40))
    monkeypatch.setenv("TUNERY_NODE_SERVE_MODULE", MODULE)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(control_plane())
        scheduler = api.world.runtime("scheduler")
        watcher = Watcher(scheduler, 60_000, 50, 600_000)
        await stack.enter_async_context(running(watcher.run))
        await stack.enter_async_context(
            running(Reactor(scheduler, POOL, react_pool, streams=STREAMS).run)
        )
        for name in ("a", "b"):
            monkeypatch.setenv("TUNERY_NODE_ID", name)
            monkeypatch.setenv("TUNERY_NODE_WORK_DIR", str(tmp_path / name))
            for host in await app.build(api.world.runtime("trainer")):
                await stack.enter_async_context(running(host.run))
        yield api


async def until(client: httpx.AsyncClient, path: str, holds: Any) -> Any:
    """Poll until the answer satisfies `holds`."""
    async with asyncio.timeout(READY_S_MAX):
        while True:
            shown = (await client.get(path)).json()
            if holds(shown):
                return shown
            await asyncio.sleep(0.1)


def replica_processes(folder: Path) -> dict[str, int]:
    """Node → the process of the replica that it runs."""
    processes = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if MODULE in words and (spec := words[words.index(MODULE) + 1]).startswith(str(folder)):
            processes[Path(spec).relative_to(folder).parts[0]] = int(entry.name)
    return processes


async def adapter_of(api: ControlPlane, tenant: str) -> tuple[BlobFile, ...]:
    """Files of an adapter with random weights, as a version of the tenant has them."""
    files = []
    for path in sorted((tiny_models.folder() / "adapter").iterdir()):
        content = path.read_bytes()
        key = f"t/{tenant}/artifacts/{path.name}"
        await api.world.blobs.put(key, content)
        digest = sha256(content).hexdigest()
        files.append(BlobFile(name=path.name, blob=key, sha256=digest, bytes=len(content)))
    return tuple(files)


async def test_replicas_answer_also_when_one_is_killed_and_are_billed(
    plane: ControlPlane, tmp_path: Path
) -> None:
    base_text, tuned_text = await asyncio.to_thread(tiny_models.answers)
    assert base_text != tuned_text
    added = await plane.api.post("/v1/bases", json={"id": "tiny", "path": str(tiny_base().dir)})
    assert added.status_code == 201, added.text
    client = await plane.tenant()
    files = await adapter_of(plane, client.headers["x-tenant"])
    row = await plane.deps.views.first(BASES, {"id": "tiny"})
    assert row is not None
    model = await version(plane, client, "one", files=files, base=row.base)
    created = await client.post(POOLS, json={"model": "tiny", "replicas": 2})
    assert created.status_code == 200, created.text
    path = f"{POOLS}/{created.json()['id']}"
    pool = await until(client, path, lambda shown: shown["ready"] == 2)
    assert {term["node"] for term in pool["terms"]} == {"a", "b"}
    body = {"stage": "production", "serving_pool": pool["id"]}
    stage = (await client.post(f"/v1/models/{model}/deploy", json=body)).json()["id"]

    async def texts() -> set[str]:
        return {await answered(client, stage, f"user-{number}") for number in range(8)}

    assert await texts() == {tuned_text}, "on both nodes, and as transformers computes it"
    killed = replica_processes(tmp_path)["a"]
    os.kill(killed, signal.SIGKILL)
    assert await texts() == {tuned_text}, "the other one answers"
    # the next term keeps away from the node of the killed one, and the other node is taken
    await until(client, path, lambda shown: len(shown["terms"]) == 2 and shown["ready"] == 1)
    assert await texts() == {tuned_text}

    await client.post(path, json={"replicas": 0})
    await until(client, path, lambda shown: not shown["terms"])
    assert replica_processes(tmp_path) == {}
    refused = await client.post(
        "/v1/chat/completions", json={"model": stage, "messages": tiny_models.ASKED}
    )
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    path = "/v1/usage/completions?limit=31"  # days: all of a month
    used = await until(client, path, lambda shown: sum_of(shown, "num_model_requests") == 24)
    assert sum_of(used, "output_tokens") <= 24 * tiny_models.TOKENS
    path = "/v1/usage?group_by=role&limit=31"
    billed = await until(client, path, lambda shown: sum_of(shown, "used_gpu_ms") > 0)
    roles = {each["role"] for bucket in billed["data"] for each in bucket["results"]}
    assert roles == {"serve"}


async def answered(client: httpx.AsyncClient, model: str, user: str) -> str:
    """The likeliest answer. As the SDK does, it is asked for again while a replica loads."""
    body = {"model": model, "messages": tiny_models.ASKED, "temperature": 0, "user": user}
    body["max_tokens"] = tiny_models.TOKENS
    async with asyncio.timeout(READY_S_MAX):
        while True:
            answer = await client.post("/v1/chat/completions", json=body, timeout=READY_S_MAX)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                assert answer.is_success, answer.text
                text: str = answer.json()["choices"][0]["message"]["content"]
                return text
            await asyncio.sleep(1)


def sum_of(page: Any, field: str) -> int:
    return sum(result[field] for bucket in page["data"] for result in bucket["results"])
