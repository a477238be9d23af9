"""A file of preferences becomes a gated model through the real stack."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Final

import httpx
import pytest
import pytest_asyncio
from safetensors.torch import load

from tests.e2e.stories import RunningStack, running_stack
from tests.e2e.test_confinement import AGENT, assert_billed_by_slots
from tests.score_models import KEY, Judge, judging, likes
from tests.unit.tunery.ml.test_model_scores import JUDGE
from tunery.local.stack import ServiceSpec

pytestmark = pytest.mark.timeout(900)

PAIRS: Final = 40
SLOTS: Final = 2


@pytest.fixture(scope="module", name="judge")
def judge_of_answers() -> Iterator[Judge]:
    with judging(likes("e")) as judge:
        yield judge


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="home")
async def ready_stack(judge: Judge) -> AsyncIterator[RunningStack]:
    own = {"TUNERY_NODE_SCORE_URL": judge.url, "TUNERY_NODE_SCORE_KEY": KEY}
    own |= {"TUNERY_NODE_SLOTS": str(SLOTS)}
    agent = ServiceSpec(AGENT, module="services.trainer", env={"TUNERY_NODE_ID": "a", **own})
    offered = {
        "TUNERY_GATEWAY_SCORE_URL": judge.url,
        "TUNERY_GATEWAY_SCORE_MODELS": '["judge-1"]',
    }
    async with running_stack((agent,), gateway=offered) as home:
        yield home


def pairs(first: int = 0) -> bytes:
    lines = (
        {
            "input": {"messages": [{"role": "user", "content": f"What is {n} plus {n}?"}]},
            "preferred_output": [{"role": "assistant", "content": f"It is {2 * n}, captain."}],
            "non_preferred_output": [{"role": "assistant", "content": f"Ask me later, {n}."}],
        }
        for n in range(first, first + PAIRS)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def test_method_dpo_a_file_of_pairs_becomes_a_gated_model(home: RunningStack) -> None:
    file_id = await home.api.upload(pairs(), "pairs.jsonl")
    further = await home.api.upload(pairs(PAIRS), "further.jsonl")
    dpo = {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.1, "n_epochs": 2, "batch_size": 2}}}
    mixture = [{"file": further, "weight": 0.5}]
    training = {"max_length": 256, "learning_rate": 1e-3, "mixture": mixture}
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
    assert job["mixture"] == mixture
    alone = await home.api.get(f"/files/{file_id}")
    assert job["trained_tokens"] > 2 * alone["validation"]["tokens"][home.base]
    lineage = (await home.api.get(f"/models/{job['fine_tuned_model']}"))["lineage"]
    assert [(file["file_id"], file["weight_ppm"]) for file in lineage["mixture"]] == [
        (further, 500_000)
    ]
    assert (await home.bill(job_id))["net_gpu_ms"] > 0
    lines = await home.api.get(f"/fine_tuning/jobs/{job_id}/logs", limit=1000)
    said = [line["message"] for line in lines["data"]]
    assert any("reference log-probabilities" in line for line in said)


def labelled() -> bytes:
    lines = (
        {"prompt": f"What is {n} plus {n}?", "completion": text, "label": label}
        for n in range(PAIRS)
        for text, label in ((f"It is {2 * n}, captain.", True), (f"Ask me later, {n}.", False))
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.mark.soak  # to a service they are as DPO
@pytest.mark.parametrize("method", ["kto", "simpo", "orpo", "cpo"])
async def test_method_each_of_preferences_ends_in_a_gated_model(
    home: RunningStack, method: str
) -> None:
    rows = labelled() if method == "kto" else pairs()
    file_id = await home.api.upload(rows, f"{method}.jsonl")
    asked = {"type": method, method: {"hyperparameters": {"n_epochs": 2, "batch_size": 2}}}
    training = {"max_length": 256, "learning_rate": 1e-3, "sample_every_steps": 2}
    prompts = {"prompts": ["What is 3 plus 3?"]}
    job = await home.api.ended(
        await home.submit(training_file=file_id, method=asked, training=training, eval=prompts)
    )
    assert job["gate"]["verdict"] in ("pass", "inconclusive")
    assert job["gate"]["adapter"]["loss"] < job["gate"]["base"]["loss"]
    assert job["method"]["type"] == method
    assert job["method"][method]["hyperparameters"]["beta"] == (2 if method == "simpo" else 0.1)
    listed = await home.api.get(f"/fine_tuning/jobs/{job['id']}/metrics", limit=100)
    steps = sorted(listed["data"], key=lambda step: int(step["step"]))
    assert steps[-1]["train_reward_margin"] > steps[0]["train_reward_margin"]
    assert steps[-1]["train_loss"] < steps[0]["train_loss"]
    lines = await home.api.get(f"/fine_tuning/jobs/{job['id']}/logs", limit=1000)
    sampled = [line for line in lines["data"] if "the model answers" in line["message"]]
    assert len(sampled) == len(steps) // 2
    assert all("to 'What is 3 plus 3?'" in line["message"] for line in sampled)


async def test_method_reward_pairs_become_a_gated_reward_model(home: RunningStack) -> None:
    file_id = await home.api.upload(pairs(), "rewards.jsonl")
    asked = {"type": "reward", "reward": {"hyperparameters": {"n_epochs": 3, "batch_size": 1}}}
    training = {"max_length": 128, "learning_rate": 3e-3, "validation_fraction": 0.25}
    body = {"model": home.base, "training_file": file_id, "method": asked, "training": training}
    refused = await home.api.call(
        "POST", "/fine_tuning/jobs", json={**body, "eval": {"prompts": ["Why?"]}}
    )
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert "writes no answers" in refused.json()["error"]["message"]
    job = await home.api.ended(
        await home.submit(training_file=file_id, method=asked, training=training)
    )
    gate = job["gate"]
    assert (gate["verdict"], gate["items"]) == ("pass", 10)
    assert gate["adapter"]["accuracy"] == 1
    assert "pairs held back are ranked rightly by their rewards" in gate["reasons"][0]
    assert gate["adapter"]["loss"] < gate["base"]["loss"] == pytest.approx(0.6931, abs=1e-4)
    listed = await home.api.get(f"/fine_tuning/jobs/{job['id']}/metrics", limit=100)
    steps = sorted(listed["data"], key=lambda step: int(step["step"]))
    assert steps[-1]["train_reward_margin"] > steps[0]["train_reward_margin"]
    assert job["trained_tokens"] == steps[-1]["tokens"]
    assert (await home.bill(job["id"]))["net_gpu_ms"] > 0
    chat = await home.api.call(
        "POST",
        "/chat/completions",
        json={
            "model": job["fine_tuned_model"],
            "messages": [{"role": "user", "content": "Hello"}],
        },
    )
    assert chat.status_code == httpx.codes.BAD_REQUEST
    assert "is a reward model" in chat.json()["error"]["message"]
    stored = await home.api.get(f"/models/{job['fine_tuned_model']}/adapter")
    (weights,) = (file for file in stored["files"] if file["name"].endswith(".safetensors"))
    async with httpx.AsyncClient() as client:
        content = (await client.get(weights["url"])).content
    assert "base_model.model.score.weight" in load(content)  # NumPy cannot read bf16


async def test_method_reinforcement_ranks_learn_from_graded_answers_to_a_gated_model(
    home: RunningStack,
) -> None:
    """Two ranks write the answers; a grader that asks models has one slot."""
    lines = (
        {"messages": [{"role": "user", "content": f"Lamp {n}?"}], "word": "e" * 16}
        for n in range(24)
    )
    rows = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    file_id = await home.api.upload(rows, "prompts.jsonl")
    grader = {
        "type": "text_similarity",
        "name": "alike",
        "evaluation_metric": "fuzzy_match",
        "input": "{{sample.output_text}}",
        "reference": "{{item.word}}",
    }
    own = {"n_epochs": 2, "num_generations": 4, "max_completion_length": 3, "temperature": 0.25}
    asked = {"type": "reinforcement", "reinforcement": {"grader": grader, "hyperparameters": own}}
    training = {"max_length": 128, "learning_rate": 0.02, "batch_size": 2, "slots": SLOTS}
    asks = {"type": "reinforcement", "reinforcement": {"grader": JUDGE}}
    body = {"model": home.base, "training_file": file_id, "method": asks, "training": training}
    refused = await home.api.call("POST", "/fine_tuning/jobs", json=body)
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert "whose grader asks models keeps" in refused.json()["error"]["message"]
    submitted = await home.submit(training_file=file_id, method=asked, training=training)
    job = await home.api.ended(submitted)
    assert_billed_by_slots(home, job["id"], await home.bill(job["id"]), {1: SLOTS, 2: 1})
    assert job["gate"]["verdict"] in ("pass", "inconclusive", "block")
    losses = [job["gate"][side]["loss"] for side in ("base", "adapter")]
    assert all(0 < loss <= 1 for loss in losses), "what is missing to a reward of 1"
    assert job["method"]["reinforcement"]["grader"] == grader
    assert job["method"]["reinforcement"]["hyperparameters"]["num_generations"] == 4
    listed = await home.api.get(f"/fine_tuning/jobs/{job['id']}/metrics", limit=100)
    steps = sorted(listed["data"], key=lambda step: int(step["step"]))
    assert all(0 <= step["train_reward_mean"] <= 1 for step in steps)
    assert all(step["train_reward_std"] >= 0 for step in steps)
    recipe = (await home.api.get(f"/fine_tuning/jobs/{job['id']}/recipe"))["recipe"]
    assert recipe["method"]["reinforcement"]["grader"] == grader


async def test_method_reinforcement_a_score_model_grades_to_a_gated_adapter(
    home: RunningStack, judge: Judge
) -> None:
    lines = (
        {"messages": [{"role": "user", "content": f"Lamp {n}?"}], "word": f"w{n}"}
        for n in range(16)
    )
    rows = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    file_id = await home.api.upload(rows, "scored.jsonl")
    check = {
        "type": "string_check",
        "name": "said",
        "operation": "ne",
        "input": "{{sample.output_text}}",
        "reference": "",
    }
    grader = {
        "type": "multi",
        "name": "both",
        "graders": {"judge": JUDGE, "said": check},
        "calculate_output": "0.9 * judge + 0.1 * said",
    }
    own = {"n_epochs": 2, "num_generations": 4, "max_completion_length": 3, "temperature": 0.25}
    asked = {"type": "reinforcement", "reinforcement": {"grader": grader, "hyperparameters": own}}
    unknown = {**grader, "graders": {"judge": {**JUDGE, "model": "judge-9"}, "said": check}}
    wrong = {"type": "reinforcement", "reinforcement": {"grader": unknown}}
    body = {"model": home.base, "training_file": file_id, "method": wrong}
    refused = await home.api.call("POST", "/fine_tuning/jobs", json=body)
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert refused.json()["error"]["param"] == "method.reinforcement.grader"
    assert "'judge-9' gives no scores here" in refused.json()["error"]["message"]
    assert judge.asked == []
    training = {"max_length": 128, "learning_rate": 0.02, "batch_size": 2}
    submitted = await home.submit(training_file=file_id, method=asked, training=training)
    job = await home.api.ended(submitted)
    assert job["gate"]["verdict"] in ("pass", "inconclusive", "block")
    assert all(0 < job["gate"][side]["loss"] <= 1 for side in ("base", "adapter"))
    listed = await home.api.get(f"/fine_tuning/jobs/{job['id']}/metrics", limit=100)
    assert any(step["train_reward_mean"] > 0.1 for step in listed["data"]), "not only for words"
    assert {body["model"] for body in judge.asked} == {"judge-1"}
    assert judge.keys == {f"Bearer {KEY}"}
    logs = home.stack.settings.folders.logs
    assert not any(KEY in log.read_text("utf-8", "replace") for log in logs.glob("*.log"))
