"""Names of models in answers: their tenant reads the suffix, which is nowhere on the log."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.job import (
    RecordCheckpoint,
    RecordClosed,
    RecordDataset,
    RecordGranted,
    RecordStarted,
    RecordVerdict,
)
from schemas.pool import AttemptEnd
from schemas.reasons import ending
from schemas.topics import JOB
from schemas.training import AttemptStart, BlobFile
from services.gateway.web.deps import Principal
from services.gateway.web.shown_names import ShownNames
from services.registry.app import TODOS
from services.registry.effect import publish
from simulator.control_plane.samples import PASSED, PREPARED, SCORED, TRAINED
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import HI, URL
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane, running
from tests.unit.services.gateway.jobs.job_events import CHECKPOINT
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tests.unit.services.gateway.models.test_routes import version
from tests.unit.services.registry.samples import adapter, sha
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.model_names import logged_name
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector

WORD = "zanzibar"
SEAL = Sealer(MemoryKeyStore())
LOGGED = logged_name(SEAL, "acme", f"ft:tiny:acme:{WORD}:12345678")
SHOWN = f"ft:tiny:acme:{WORD}:12345678"


async def answered(app: ASGIApp, tenant: str, *scopes: str) -> httpx.Response:
    """What a caller of a tenant gets from an application behind `ShownNames`."""
    caller = Principal(tenant=tenant, key_id="k", scopes=frozenset(scopes or ("read", "write")))

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        await ShownNames(app, SEAL)({**scope, "state": {"principal": caller}}, receive, send)

    transport = httpx.ASGITransport(app=known)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        return await client.get("/")


@pytest.mark.parametrize("kind", [JSONResponse, HTMLResponse])
async def test_an_answer_names_models_as_their_tenant_knows_them(kind: type[Any]) -> None:
    body = await answered(kind(f"{LOGGED} and {LOGGED}:ckpt-step-4"), "acme")
    assert f"{SHOWN} and {SHOWN}:ckpt-step-4" in body.text
    assert int(body.headers["content-length"]) == len(body.content)


async def test_frames_of_a_stream_name_models_too() -> None:
    async def frames() -> AsyncIterator[bytes]:
        for _ in range(2):
            yield f'data: {{"model": "{LOGGED}"}}\n\n'.encode()

    body = await answered(StreamingResponse(frames(), media_type="text/event-stream"), "acme")
    assert body.text.count(SHOWN) == 2


async def test_an_answer_in_parts_comes_whole_though_its_length_changes() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (LOGGED, LOGGED):
            yield part.encode()

    length = {"content-length": str(2 * len(LOGGED))}
    body = await answered(
        StreamingResponse(parts(), headers=length, media_type="text/html"), "acme"
    )
    assert (body.text, "content-length" in body.headers) == (SHOWN + SHOWN, False)


async def test_files_of_a_tenant_are_left_as_they_are() -> None:
    assert (await answered(PlainTextResponse(LOGGED), "acme")).text == LOGGED


async def test_security_h4_suffixes_are_read_by_their_tenant_and_operators_alone() -> None:
    app = JSONResponse(LOGGED)
    assert (await answered(app, "other")).json() == LOGGED
    assert (await answered(app, "other", "admin")).json() == SHOWN


# --- through the whole control plane --------------------------------------------------------------


@dataclass
class Trained:
    """A version that a job with a suffix has made, and everything around it."""

    plane: ControlPlane
    client: httpx.AsyncClient
    file_id: str
    job: dict[str, Any]

    @property
    def model(self) -> str:
        name: str = self.job["fine_tuned_model"]
        return name

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, **body: Any) -> Any:
        answer = await self.client.post(path, json=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()


@asynccontextmanager
async def publishing(plane: ControlPlane) -> AsyncIterator[None]:
    """The registry publishes versions inside the block."""
    runtime = plane.world.runtime("registry")
    hosts = (
        Projector(runtime, TODOS),
        EffectHost(runtime, (publish(runtime.blobs, runtime.seal),)),
    )
    async with running(hosts):
        yield


async def stored(plane: ControlPlane, tenant: str) -> tuple[BlobFile, ...]:
    """The files that a training leaves."""
    files = []
    for name, data in adapter().items():
        body = data.replace(b'"small"', b'"tiny-llama"')
        key = f"t/{tenant}/adapters/{name}"
        await plane.world.blobs.put(key, body)
        files.append(BlobFile(name=name, blob=key, sha256=sha(body), bytes=len(body)))
    return tuple(files)


async def trained(plane: ControlPlane) -> Trained:
    """Everything that nodes say about a job with a suffix, until its version is published."""
    client, file_id = await ready(plane)
    tenant = client.headers["x-tenant"]
    job_id = (await submit(client, file_id, suffix=WORD.title())).json()["id"]
    files = await stored(plane, tenant)
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=20)
    end = AttemptEnd(
        outcome="succeeded",
        ended_by="training",
        reason=ending("exited"),
        node_ids=("a",),
        used_gpu_ms=1_000,
        billable_gpu_ms=1_000,
        lost_gpu_ms=0,
    )
    await plane.send(JOB, tenant, RecordDataset(job_id=job_id, prepared=PREPARED))
    path = f"/v1/fine_tuning/jobs/{job_id}"
    await plane.until(client, path, lambda job: job["status"] == "queued")
    for fact in (
        RecordGranted(job_id=job_id, attempt=1, node_ids=("a",)),
        RecordStarted(job_id=job_id, attempt=1, start=start),
        RecordCheckpoint(job_id=job_id, checkpoint=replace(CHECKPOINT, files=files)),
        RecordClosed(
            job_id=job_id,
            attempt=1,
            role="train",
            end=replace(end, result=replace(TRAINED, adapter=files)),
        ),
        RecordGranted(job_id=job_id, attempt=2, node_ids=("a",)),
        RecordClosed(job_id=job_id, attempt=2, role="eval", end=replace(end, result=SCORED)),
        RecordVerdict(job_id=job_id, summary=PASSED),
    ):
        await plane.send(JOB, tenant, fact)
    async with publishing(plane):
        job = await plane.until(client, path, lambda job: job["status"] in ("succeeded", "failed"))
    assert job["status"] == "succeeded", job
    return Trained(plane, client, file_id, job)


async def test_a_name_of_before_and_one_of_the_same_suffix_share_their_stages() -> None:
    async with control_plane() as plane:
        owner = await trained(plane)
        former = await version(plane, owner.client, WORD)
        line = owner.model.rpartition(":")[0]
        assert former.rpartition(":")[0] == line
        for model, stage in ((former, "staging"), (owner.model, "production")):
            await owner.post(f"/v1/models/{model}/promote", stage=stage, expected=None)
            assert (await owner.get(f"/v1/models/{line}:{stage}"))["id"] == model
            assert (await asked(owner, model=f"{line}:{stage}")).json()["model"] == model


async def asked(owner: Trained, **body: Any) -> httpx.Response:
    engine = owner.plane.deps.engine
    assert isinstance(engine, ScriptedEngine)
    engine.begin()
    return await owner.client.post(URL, json={"messages": HI, **body})


async def used_by_its_names(owner: Trained) -> None:
    """Whatever a tenant does with a version, by the names that it is shown."""
    model, job = owner.model, owner.job
    end = job["id"][-8:]
    assert model == f"ft:tiny-llama:{owner.client.headers['x-tenant']}:{WORD}:{end}"
    assert (await owner.get(f"/v1/models/{model}"))["id"] == model
    assert (await owner.get(f"/v1/models/{model}/adapter"))["id"] == model
    assert model in [shown["id"] for shown in (await owner.get("/v1/models"))["data"]]
    events = (await owner.get(f"/v1/fine_tuning/jobs/{job['id']}/events"))["data"]
    assert f"New fine-tuned model created: {model}" in [event["message"] for event in events]
    path = f"/v1/models/{model}"
    await owner.post(f"{path}/quarantine", quarantined=True, reason="r", name="n")
    await owner.post(f"{path}/quarantine", quarantined=False, reason="r", name="n")
    promoted = await owner.post(f"{path}/promote", stage="production", expected=None)
    assert (promoted["id"], promoted["stage"]) == (model, "production")
    again = await owner.post(f"{path}/promote", stage="production", expected=model)
    assert again["stage"] == "production"
    production = f"{model.rpartition(':')[0]}:production"
    assert (await owner.get("/v1/deployments"))["data"][0]["id"] == production
    deployed = await owner.post(f"{path}/deploy", stage="production", traffic={model: 100})
    assert (deployed["id"], deployed["model"]) == (production, model)
    for name in (model, production):
        assert (await asked(owner, model=name)).json()["model"] == model
    stream = await asked(owner, model=production, stream=True)
    assert f'"model":"{model}"' in stream.text
    for change in ("promote", "deploy"):
        body = {"stage": "production", "expected": f"{WORD}-of-no-version"}
        unknown = await owner.client.post(f"{path}/{change}", json=body)
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "expected")
    kept = await owner.client.delete(path)
    assert (kept.status_code, model in kept.json()["error"]["message"]) == (409, True)
    own = await owner.client.post(f"{path}/approve", json={"stage": "production"})
    assert (own.status_code, model in own.json()["error"]["message"]) == (409, True)
    assert (await owner.get(f"{path}/history"))["data"]


async def trained_on(owner: Trained) -> None:
    """Jobs that begin with the version, and with its checkpoint."""
    checkpoints = (await owner.get(f"/v1/fine_tuning/jobs/{owner.job['id']}/checkpoints"))["data"]
    name = checkpoints[0]["fine_tuned_model_checkpoint"]
    assert name == f"{owner.model}:ckpt-step-{CHECKPOINT.step}"
    assert (await owner.get(f"/v1/models/{name}"))["id"] == name
    for start in (owner.model, name):
        answer = await submit(owner.client, owner.file_id, model=start, suffix=WORD, seed=1)
        assert (answer.status_code, answer.json()["model"]) == (200, start), answer.text
        recipe = await owner.get(f"/v1/fine_tuning/jobs/{answer.json()['id']}/recipe")
        assert (recipe["recipe"]["model"], recipe["recipe"]["suffix"]) == (start, WORD)
        await owner.post(f"/v1/fine_tuning/jobs/{answer.json()['id']}/cancel")
    missing = await submit(owner.client, owner.file_id, model=f"{owner.model}x")
    assert missing.status_code == 404


async def places_with(plane: ControlPlane, word: str) -> list[str]:
    """Where a text is in the clear: records of the log, rows, names of objects, figures."""
    texts = {
        f"log {topic}": b"".join(record.key + record.value for record in partition.records)
        for topic, partitions in plane.world.log.topics.items()
        for partition in partitions
    }
    store: Any = plane.runtime.store
    texts |= {
        f"row of {table}": msgspec.json.encode(await store.rows(table)) for table in store._tables
    }
    texts["objects"] = "\n".join(plane.world.blobs.bodies).encode()
    texts["metrics"] = generate_latest()
    return [source for source, text in texts.items() if word.encode() in text.lower()]


async def test_security_h4_a_suffix_is_nowhere_but_in_answers_and_files_of_its_tenant() -> None:
    """The suffix was on the log in the model's id, and stayed there after an erasure."""
    async with control_plane() as plane:
        owner = await trained(plane)
        await used_by_its_names(owner)
        await trained_on(owner)
        for change in ({}, {"erase": "true"}):
            path = f"/v1/models/{owner.model}"
            await owner.post(f"{path}/promote", stage="archived", expected=None)
            assert (await owner.client.delete(path, params=change)).json()["id"] == owner.model
            assert (await owner.client.get(path)).status_code == 404
            if not change:
                listed = await owner.get("/v1/models?deleted=true")
                assert [shown["id"] for shown in listed["data"]] == [owner.model]
                assert (await owner.post(f"{path}/restore"))["id"] == owner.model
        assert await places_with(plane, WORD) == []
        # a text of another kind is found by the same search
        assert await places_with(plane, owner.job["id"])
        (lineage,) = [
            json.loads(body)
            for key, body in plane.world.blobs.bodies.items()
            if key.endswith("/lineage.json")
        ]
        assert lineage["model_id"] == owner.model
