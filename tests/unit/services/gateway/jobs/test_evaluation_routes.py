"""Adapters of elsewhere over HTTP, and further runs of the gate."""

import asyncio
import json
import pickle
import struct
import threading
import time
from typing import Any

import httpx
import pytest

from services.gateway.jobs import evaluation_routes
from services.gateway.web import edge
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.models.test_routes import version
from tests.unit.tunery.benchmarks.tasks import choices_task, safety_task

CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def weights(shape: tuple[int, int] = (4, 8), name: str = NAME) -> bytes:
    size = 4 * shape[0] * shape[1]
    header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}})
    return struct.pack("<Q", len(header)) + header.encode() + bytes(size)


async def send(
    client: httpx.AsyncClient, file: bytes, config: Any = CONFIG, **fields: str
) -> httpx.Response:
    text = config if isinstance(config, str) else json.dumps(config)
    form = {"model": BASE.base_id, "config": text, **fields}
    return await client.post("/v1/models/import", data=form, files={"file": ("a.bin", file)})


async def test_an_adapter_of_elsewhere_is_a_job_without_a_training(api: ControlPlane) -> None:
    client = await api.tenant()
    answer = await send(client, weights(), suffix="theirs")
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["training_file"], job["fine_tuned_model"]) == ("", None)
    assert f":{client.headers['x-tenant']}:theirs:" in job["model"]
    assert job["hyperparameters"]["rank"] == 4
    estimate = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}/cost")).json()["estimate"]
    assert estimate["train_gpu_ms"] == 0 < estimate["eval_gpu_ms"]
    starts = await client.get(f"/v1/fine_tuning/jobs/{job['id']}/starts")
    assert starts.is_success, starts.text
    stored = [key for key in api.world.blobs.bodies if f"/imports/{job['id']}/" in key]
    assert len(stored) == 2


async def test_an_adapter_may_be_larger_than_other_bodies(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "BODY_BYTES_MAX", 2_000)
    answer = await send(await api.tenant(), weights((4, 1_000)))
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    ("file", "config", "says"),
    [
        (pickle.dumps({"weights": 1}), CONFIG, "pickle"),
        (b"PK\x03\x04" + bytes(100), CONFIG, "pickle"),
        (struct.pack("<Q", 1 << 40) + b"{", CONFIG, "header"),
        (weights()[:-1], CONFIG, "end"),
        (weights((5, 8)), CONFIG, "rank 4"),
        (weights(name="something"), CONFIG, "LoRA"),
        (b"", CONFIG, "too short"),
        (weights(), "{", "JSON"),
        (weights(), {**CONFIG, "peft_type": "IA3"}, "peft_type"),
        (weights(), {**CONFIG, "r": 4_000}, "rank"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_broken_adapter_is_400_and_leaves_nothing(
    api: ControlPlane, file: bytes, config: Any, says: str
) -> None:
    client = await api.tenant()
    answer = await send(client, file, config)
    assert answer.status_code == 400, answer.text
    assert says in answer.json()["error"]["message"]
    folder = f"t/{client.headers['x-tenant']}/imports/"
    assert not [key for key in api.world.blobs.bodies if key.startswith(folder)]
    assert (await client.get("/v1/fine_tuning/jobs")).json()["data"] == []


async def test_review2_p20_headers_are_small_and_parsed_one_at_a_time_beside_the_event_loop(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await api.tenant()
    too_long = await send(client, struct.pack("<Q", (1 << 20) + 1) + b"{" * 100)
    assert too_long.status_code == 400
    assert "header of 1048577 bytes" in too_long.json()["error"]["message"]
    loop, most, now = threading.current_thread(), 0, 0

    def parse(*_: object) -> None:
        nonlocal most, now
        assert threading.current_thread() is not loop
        now += 1
        most = max(most, now)
        time.sleep(0.02)
        now -= 1

    monkeypatch.setattr(evaluation_routes, "_check_weights", parse)
    answers = await asyncio.gather(*(send(client, weights()) for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {201, 429}
    assert most == 1


async def test_an_unknown_base_model_and_another_tenants_rows_are_404(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    assert (await send(client, weights(), model="none")).status_code == 404
    rows = (await api.upload(other))["id"]
    assert (await send(client, weights(), validation_file=rows)).status_code == 404


async def test_a_further_run_of_the_gate_is_a_job_on_the_same_rows(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    job = (await send(client, weights())).json()
    model_id = await version(api, client, "one", job_id=job["id"])
    answer = await client.post(f"/v1/models/{model_id}/gate")
    assert answer.status_code == 201, answer.text
    run = answer.json()
    assert (run["model"], run["training_file"]) == (model_id, "")
    assert run["id"] != job["id"]
    for name in (model_id, "ft:none"):
        assert (await other.post(f"/v1/models/{name}/gate")).status_code == 404


async def test_a_further_run_and_an_import_ask_the_benchmarks_of_the_policy(
    api: ControlPlane,
) -> None:
    for name, content in (("arc-now", choices_task()), ("safe-now", safety_task())):
        assert (await api.api.put(f"/v1/gate/benchmarks/{name}", content=content)).is_success
    client = await api.tenant()
    job = (await send(client, weights())).json()
    assert job["eval"]["benchmarks"] is None
    model_id = await version(api, client, "one", job_id=job["id"])
    wanted = ["arc-now", "safe-now"]
    assert (await client.post("/v1/gate/policies", json={"benchmarks": wanted})).is_success
    run = (await client.post(f"/v1/models/{model_id}/gate")).json()
    assert (run["eval"]["benchmarks"], run["eval"]["benchmark_items"]) == (wanted, 1_000)
    imported = (await send(client, weights(), suffix="theirs")).json()
    assert imported["eval"]["benchmarks"] == wanted
