"""Before any machine works: files, the estimate, one job however often it is submitted."""

import json
from typing import Any, Final

from tunery.cli.demo.context import EXAMPLES, Scene
from tunery.cli.demo.polling import until
from tunery.local.paths import BASE_MODEL_ID

VALIDATION_S_MAX: Final = 60
SHOWN_MAX: Final = 12
IDEMPOTENCY_KEY: Final = "demo-lighthouse-1"
# Rows of 256 tokens: twice the updates of the usual 512 for the same work. Few enough for two
# cores, enough for an effect that a person sees.
TRAINING: Final[dict[str, Any]] = {
    "method": {
        "type": "supervised",
        "supervised": {"hyperparameters": {"n_epochs": 1, "batch_size": 1}},
    },
    "lora": {"rank": 8},
    "training": {
        "learning_rate": 2e-3,
        "max_length": 256,
        "checkpoint_every_steps": 6,
        "validation_fraction": 0.05,
    },
}


async def bad_file(scene: Scene) -> None:
    scene.view.chapter("A file with planted errors")
    path = EXAMPLES / "broken.jsonl"
    planted = json.loads((EXAMPLES / "broken.expected.json").read_text("utf-8"))
    report = await _validated(scene, path)
    found = report["report"]["errors"]
    scene.view.table(
        ("row", "code", "what to do"),
        [
            (str(one["row"] or "file"), one["code"], one["hint"] or one["message"])
            for one in found[:SHOWN_MAX]
        ],
    )
    named = {(str(one["row"]), one["code"]) for one in found}
    wanted = {(row, code) for row, code in planted.items()}
    holds = not report["accepted"] and wanted <= named
    text = f"refused before any machine was used: all {len(wanted)} planted errors named by row"
    scene.check("every_planted_error_named", holds, text)


async def good_file(scene: Scene) -> None:
    scene.view.chapter(f"A good file: {scene.training_file.name}")
    report = await _validated(scene, scene.training_file)
    scene.file_id = report["id"]
    tokens = {one["base_id"]: one["tokens"] for one in report["tokens"]}
    text = (
        f"{report['rows']} rows of {report['dialect']}, {report['warnings']} warnings, "
        f"{tokens.get(BASE_MODEL_ID, 0)} tokens by the model's own tokenizer and template"
    )
    holds = bool(report["accepted"]) and tokens.get(BASE_MODEL_ID, 0) > 0
    scene.check("good_file_accepted", holds, text)


async def estimate(scene: Scene) -> None:
    scene.view.chapter("What it will take, before it is started")
    found = await scene.api.estimate(request(scene))
    scene.estimate = held = found
    scene.view.line(
        f"{held['trained_tokens']} tokens in {held['steps']} steps, "
        f"{held['memory_bytes'] / 1e9:.1f} GB memory, "
        f"{(held['train_gpu_ms'] + held['eval_gpu_ms']) / 60_000:.1f} slot-minutes expected"
    )
    price, most = held["amount_micro"] / 1e6, held["amount_max_micro"] / 1e6
    text = (
        f"{price:.4f} {held['currency']} expected; {most:.4f} {held['currency']} is held "
        "and can never be passed"
    )
    holds = 0 < held["amount_micro"] <= held["amount_max_micro"] and held["steps"] > 0
    scene.check("estimate_given_before_launch", holds, text)


async def submit(scene: Scene) -> None:
    scene.view.chapter("One job, submitted twice")
    endpoint = await scene.api.create_endpoint({"name": "demo", "url": scene.receiver.url})
    scene.secret = endpoint["signing_secret"]
    first = await scene.api.submit(request(scene), IDEMPOTENCY_KEY)
    second = await scene.api.submit(request(scene), IDEMPOTENCY_KEY)
    scene.job_id = first["id"]
    jobs = [job async for job in scene.api.jobs()]
    scene.view.line(f"{first['id']}  {first['status']}")
    same = first["id"] == second["id"] and len(jobs) == 1
    scene.check("two_submissions_one_job", same, "same key, same job: nobody pays twice")


def request(scene: Scene) -> dict[str, Any]:
    return {
        "model": BASE_MODEL_ID,
        "training_file": scene.file_id,
        "suffix": "lighthouse",
        "seed": 7,
        **TRAINING,
    }


async def _validated(scene: Scene, path: Any) -> Any:
    uploaded = await scene.api.upload(path)
    return await until(
        lambda: scene.api.validation(uploaded["id"]),
        lambda report: bool(report["status"] == "done"),
        VALIDATION_S_MAX,
    )
