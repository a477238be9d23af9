"""Chat templates of jobs over HTTP."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from msgspec.structs import replace

from schemas.dataset import BaseTokens, RecordValidation, Validation
from schemas.model import AddBase, Base
from schemas.streams import GLOBAL, PARTITIONS
from schemas.topics import DATASET, MODEL
from services.gateway.jobs import own_counts
from services.gateway.jobs.own_counts import OwnCounts
from services.gateway.jobs.submission import SUBMITTING_MAX
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.jobs.test_checkpoint_routes import checkpoint_of_job
from tests.unit.services.gateway.jobs.test_routes import submit
from tests.unit.services.gateway.models.test_routes import version
from tests.unit.services.gateway.web.test_shown_names import places_with
from tests.unit.services.ingest.base import make_base
from tunery.work.own_chat import OwnChat

__all__ = ["engine"]  # a fixture


async def test_bases_f7_reasoning_that_the_template_leaves_out_is_refused_until_it_is_dropped(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    file_id = (await api.upload(client))["id"]
    await api.validated(client, file_id, reasoning="drop")
    report = (await client.get(f"/v1/files/{file_id}/validation")).json()
    assert [counted["reasoning"] for counted in report["tokens"]] == ["drop"]
    refused = await submit(client, file_id)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "training.reasoning")
    assert "template_drops_text" in error["message"]
    assert "Set training.reasoning to drop" in error["message"]
    unknown = await submit(client, file_id, training={"reasoning": "hide"})
    assert "must be one of keep, drop" in unknown.json()["error"]["message"]
    job = (await submit(client, file_id, training={"reasoning": "drop"})).json()
    recipe = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}/recipe")).json()["recipe"]
    assert recipe["training"]["reasoning"] == "drop"
    other = await submit(client, file_id, validation_file=file_id)
    assert other.json()["error"]["param"] == "training.reasoning"


REASONS = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LOSES = REASONS.replace("message.reasoning_content", "message.nothing")
ROWS = b"".join(
    json.dumps(
        {
            "messages": [
                {"role": "user", "content": f"Why is lantern {number} lit?"},
                {"role": "assistant", "content": "So.", "reasoning_content": "It is dark."},
            ]
        }
    ).encode()
    + b"\n"
    for number in range(12)
)


class OwnBase(NamedTuple):
    """A base model of one test, whose tokenizer is on this machine, and a tenant's file."""

    client: httpx.AsyncClient
    file_id: str
    base: Base

    async def submit(self, **training: Any) -> httpx.Response:
        return await submit(self.client, self.file_id, model=self.base.base_id, training=training)


@pytest.fixture
async def own(api: ControlPlane, tmp_path: Path) -> OwnBase:
    base_id = f"small-{tmp_path.name}"  # other tests have their own in the same control plane
    base = replace(
        BASE,
        base_id=base_id,
        sha256=hashlib.sha256(base_id.encode()).hexdigest(),
        path=str(make_base(tmp_path / "small")),
    )
    for partition in range(PARTITIONS):
        await api.send(MODEL, GLOBAL, AddBase(base=base), partition=partition)
    await api.until(
        api.api, "/v1/bases", lambda answer: base_id in {each["id"] for each in answer["data"]}
    )
    client = await api.tenant()
    file_id = (await api.upload(client, ROWS))["id"]
    await api.validated(client, file_id, reasoning="drop")
    return OwnBase(client, file_id, base)


async def test_bases_f7_a_template_of_a_job_is_tried_on_its_rows_and_kept_with_it(
    api: ControlPlane, own: OwnBase
) -> None:
    client = own.client
    training: dict[str, Any] = {"chat_template": REASONS, "eot_tokens": ["<|im_end|>"]}
    answer = await own.submit(**training)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    recipe = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}/recipe")).json()["recipe"]
    assert {name: recipe["training"][name] for name in training} == training
    again = (await own.submit(**training)).json()
    assert again["duplicate_of"]["id"] == job["id"]
    other = {**training, "chat_template": f"{REASONS}{{# 2 #}}"}
    assert (await own.submit(**other)).json()["duplicate_of"] is None
    assert await places_with(api, "reasoning_content %}") == []  # it is sealed


async def test_bases_f7_a_training_goes_on_with_the_template_of_its_version(
    api: ControlPlane, own: OwnBase
) -> None:
    client, file_id, _ = own
    training = {"chat_template": REASONS}
    job = (await own.submit(**training)).json()
    model_id = await version(api, client, "first", job_id=job["id"])
    shown = await client.post(
        "/v1/fine_tuning/preview", json={"model": model_id, "training_file": file_id}
    )
    assert "<think>It is dark.</think>" in str(shown.json()["data"])
    second = await submit(client, file_id, model=model_id)
    assert second.status_code == 200, second.text
    path = f"/v1/fine_tuning/jobs/{second.json()['id']}/recipe"
    assert (await client.get(path)).json()["recipe"]["training"]["chat_template"] == REASONS
    tokens = {"eot_tokens": ["<|im_start|>"]}
    third = await submit(client, file_id, model=model_id, training=tokens)
    assert third.status_code == 200, third.text
    path = f"/v1/fine_tuning/jobs/{third.json()['id']}/recipe"
    recipe = (await client.get(path)).json()["recipe"]["training"]
    assert {name: recipe[name] for name in (*training, *tokens)} == training | tokens
    other = await submit(client, file_id, model=model_id, training={"chat_template": LOSES})
    assert other.json()["error"]["param"] == "training.chat_template"


async def test_bases_f7_a_checkpoint_is_asked_with_the_template_of_its_job(
    api: ControlPlane, engine: ScriptedEngine, own: OwnBase
) -> None:
    client = own.client
    job = (await own.submit(chat_template=REASONS, eot_tokens=["<|im_start|>"])).json()
    checkpoint = await checkpoint_of_job(api, client, job["id"])
    body = {"model": checkpoint.name, "messages": [{"role": "user", "content": "Hi"}]}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert engine.asked[0].model.chat == OwnChat(REASONS, ("<|im_start|>",))


@pytest.mark.parametrize(
    ("training", "param", "words"),
    [
        ({"chat_template": LOSES}, "chat_template", "12 rows of training_file: file-"),
        ({"chat_template": LOSES}, "chat_template", "its reasoning (template_drops_text)"),
        ({"chat_template": "{% for %}"}, "chat_template", "the chat template is unusable"),
        ({"chat_template": ""}, "chat_template", "must be the text of a Jinja template"),
        ({"chat_template": "x" * 40_000}, "chat_template", "40000 bytes, at most 32768"),
        ({"eot_tokens": ["<|eot|>"]}, "eot_tokens", "'<|eot|>' is no special token"),
        ({"eot_tokens": "<|im_end|>"}, "eot_tokens", "must be a list of at most 8 tokens"),
    ],
)
async def test_bases_f7_a_template_that_does_not_fit_is_refused_with_its_place(
    own: OwnBase, training: dict[str, Any], param: str, words: str
) -> None:
    answer = await own.submit(**training)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, f"training.{param}"), error
    assert words in error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"training": {"chat_template": "\ud800"}},
        {"training": {"eot_tokens": ["\ud800"]}},
        {"eval": {"prompts": ["\ud800"]}},
        {"method": {"type": "reinforcement", "reinforcement": {"grader": {"a": "\ud800"}}}},
    ],
)
async def test_bases_f7_half_of_a_surrogate_pair_is_refused(
    api: ControlPlane, fields: dict[str, Any]
) -> None:
    client = await api.tenant()
    body = json.dumps({"model": "small", "training_file": "file-1", **fields})
    headers = {"content-type": "application/json"}
    for path in ("jobs", "jobs/estimate", "jobs/plan"):
        answer = await client.post(f"/v1/fine_tuning/{path}", content=body, headers=headers)
        error = answer.json()["error"]
        assert (answer.status_code, "surrogate" in error["message"]) == (400, True), error
        assert error["param"].startswith(next(iter(fields)))


async def test_bases_f7_templates_that_are_tried_for_long_keep_no_other_submission_waiting(
    own: OwnBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, all_tried, go_on = 0, asyncio.Event(), asyncio.Event()

    async def count(*_: Any) -> dict[str, Any]:
        nonlocal tried
        tried += 1
        if tried == SUBMITTING_MAX:
            all_tried.set()
        await go_on.wait()
        return {}

    monkeypatch.setattr(OwnCounts, "count", count)
    slow = [asyncio.create_task(own.submit(chat_template=REASONS)) for _ in range(SUBMITTING_MAX)]
    async with asyncio.timeout(10):
        await all_tried.wait()
        other = await submit(own.client, own.file_id, training={"reasoning": "drop"})
    go_on.set()
    await asyncio.gather(*slow)
    assert other.status_code == 200, other.text


async def test_bases_f7_a_file_with_a_short_beginning_has_at_least_the_tokens_of_its_validation(
    api: ControlPlane, own: OwnBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, base = own
    monkeypatch.setattr(own_counts, "READ_BYTES_MAX", len(ROWS) // 2)
    file_id = (await api.upload(client, ROWS.replace(b"12", b"13")))["id"]
    whole = BaseTokens(
        base_id=base.base_id,
        base_sha256=base.sha256,
        tokens=90_000,
        trainable_tokens=80_000,
        longest_row_tokens=500,
    )
    validation = Validation(
        accepted=True,
        dialect="chat",
        rows=12,
        errors=0,
        warnings=0,
        tokens=(whole,),
        report_blob="r",
    )
    training = {"chat_template": REASONS}
    body = {"model": base.base_id, "training_file": file_id, "training": training}
    path = "/v1/fine_tuning/jobs/estimate"
    before = (await client.post(path, json=body)).json()
    record = RecordValidation(file_id=file_id, validation=validation)
    await api.send(DATASET, client.headers["x-tenant"], record)
    await api.until(client, f"/v1/files/{file_id}", lambda file: file["status"] != "uploaded")
    after = (await client.post(path, json=body)).json()
    assert before["trained_tokens"] < 10_000 < 80_000 < after["trained_tokens"]
