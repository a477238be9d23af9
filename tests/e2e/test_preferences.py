"""Preferences, and training of every weight: gated models through the real stack."""

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import httpx
import pytest
import pytest_asyncio

from tests.e2e.stories import RunningStack, running_stack

pytestmark = pytest.mark.timeout(300)

PAIRS: Final = 40


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="home")
async def ready_stack() -> AsyncIterator[RunningStack]:
    async with running_stack() as home:
        yield home


def pairs() -> bytes:
    lines = (
        {
            "input": {"messages": [{"role": "user", "content": f"What is {n} plus {n}?"}]},
            "preferred_output": [{"role": "assistant", "content": f"It is {2 * n}, captain."}],
            "non_preferred_output": [{"role": "assistant", "content": f"Ask me later, {n}."}],
        }
        for n in range(PAIRS)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def test_method_dpo_a_file_of_pairs_becomes_a_gated_model(home: RunningStack) -> None:
    file_id = await home.api.upload(pairs(), "pairs.jsonl")
    dpo = {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.1, "n_epochs": 2, "batch_size": 2}}}
    training = {"max_length": 256, "learning_rate": 1e-3}
    wrong = await home.api.call(
        "POST", "/fine_tuning/jobs", json={"model": home.base, "training_file": file_id}
    )
    assert wrong.status_code == httpx.codes.BAD_REQUEST
    assert 'Set method.type to "dpo"' in wrong.json()["error"]["message"]
    job_id = await home.submit(training_file=file_id, method=dpo, training=training)
    job = await home.api.ended(job_id)
    assert job["method"]["dpo"]["hyperparameters"]["beta"] == 0.1
    assert job["method"]["supervised"] is None
    assert job["gate"]["verdict"] in ("pass", "inconclusive")
    base, adapter = job["gate"]["base"]["loss"], job["gate"]["adapter"]["loss"]
    assert base == pytest.approx(0.6931, abs=0.01)
    assert adapter < base
    listed = await home.api.get(f"/fine_tuning/jobs/{job_id}/metrics", limit=100)
    steps = sorted(listed["data"], key=lambda step: int(step["step"]))
    assert steps[0]["train_loss"] == pytest.approx(0.6931, abs=0.01)
    assert steps[-1]["train_reward_margin"] > steps[0]["train_reward_margin"]
    assert steps[-1]["valid_reward_accuracy"] is not None
    assert job["trained_tokens"] == steps[-1]["tokens"]
    assert (await home.bill(job_id))["net_gpu_ms"] > 0
    lines = await home.api.get(f"/fine_tuning/jobs/{job_id}/logs", limit=1000)
    said = [line["message"] for line in lines["data"]]
    assert any("reference log-probabilities" in line for line in said)


def chats() -> bytes:
    lines = (
        {
            "messages": [
                {"role": "user", "content": f"What is {n} plus {n}?"},
                {"role": "assistant", "content": f"It is {2 * n}, captain."},
            ]
        }
        for n in range(PAIRS)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def test_training_full_becomes_a_gated_model_that_another_goes_on_from(
    home: RunningStack, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file_id = await home.api.upload(chats(), "chats.jsonl")
    training = {"adaptation": "full", "max_length": 256, "learning_rate": 1e-3}
    refused = await home.api.call(
        "POST",
        "/fine_tuning/jobs",
        json={
            "model": home.base,
            "training_file": file_id,
            "lora": {"rank": 8},
            "training": training,
        },
    )
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert refused.json()["error"]["param"] == "lora.rank"
    job_id = await home.submit(training_file=file_id, training=training, lora={})
    job = await home.api.ended(job_id)
    assert job["status"] == "succeeded", job["error"]
    base, whole = job["gate"]["base"]["loss"], job["gate"]["adapter"]["loss"]
    assert whole < base
    answers = await home.api.get(f"/fine_tuning/jobs/{job['id']}/answers")
    assert len(answers["data"]) > 1
    model_id = job["fine_tuned_model"]
    assert (await home.api.get(f"/models/{model_id}"))["format"] == "transformers"
    listed = await home.api.get(f"/models/{model_id}/adapter")
    async with httpx.AsyncClient() as storage:
        for file in listed["files"]:
            content = (await storage.get(file["url"])).content
            assert sha256(content).hexdigest() == file["sha256"]
            (tmp_path / file["name"]).write_bytes(content)
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template
    assert AutoModelForCausalLM.from_pretrained(tmp_path).num_parameters() > 0
    second = await home.submit(model=model_id, training_file=file_id, training={}, lora={})
    job = await home.api.ended(second)
    assert job["status"] == "succeeded", job["error"]
    assert job["gate"]["adapter"]["loss"] < base
