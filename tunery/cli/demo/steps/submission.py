"""Before any training: files are validated, the cost is estimated, the job is submitted."""

import json
from typing import Any, Final

from tunery.cli.demo.context import EXAMPLES, DemoContext
from tunery.cli.demo.polling import poll_until
from tunery.local.paths import BASE_MODEL_ID

VALIDATION_S_MAX: Final = 60
SHOWN_MAX: Final = 12
IDEMPOTENCY_KEY: Final = "demo-lighthouse-1"
# Rows of 256 tokens: twice the updates of the usual 512 for the same work. So many steps are few
# enough for two cores, and enough for an effect that a person sees.
TRAINING: Final[dict[str, Any]] = {
    "method": {
        "type": "supervised",
        "supervised": {"hyperparameters": {"n_epochs": 1, "batch_size": 1}},
    },
    "lora": {"rank": 8},
    "training": {
        "learning_rate": 2e-3,
        "max_length": 256,
        "max_steps": 32,
        "checkpoint_every_steps": 4,
        "validation_fraction": 0.05,
    },
}


async def bad_file(context: DemoContext) -> None:
    """Upload a file with planted errors and show that each one is reported by row."""
    context.display.step("A file with planted errors")
    path = EXAMPLES / "broken.jsonl"
    planted = json.loads((EXAMPLES / "broken.expected.json").read_text("utf-8"))
    report = await upload_and_validate(context, path)
    errors = report["report"]["errors"]
    context.display.table(
        ("row", "code", "what to do"),
        [
            (str(error["row"] or "file"), error["code"], error["hint"] or error["message"])
            for error in errors[:SHOWN_MAX]
        ],
    )
    reported = {(str(error["row"]), error["code"]) for error in errors}
    expected = set(planted.items())
    holds = not report["accepted"] and expected <= reported
    text = f"rejected before any GPU was used: all {len(expected)} planted errors reported by row"
    context.check("every_planted_error_named", holds, text)


async def good_file(context: DemoContext) -> None:
    """Upload the training file and show what the report counts."""
    context.display.step(f"A good file: {context.training_file.name}")
    report = await upload_and_validate(context, context.training_file)
    context.file_id = report["id"]
    tokens = {count["base_id"]: count["tokens"] for count in report["tokens"]}
    text = (
        f"{report['rows']} rows of {report['dialect']}, {report['warnings']} warnings, "
        f"{tokens.get(BASE_MODEL_ID, 0)} tokens by the model's own tokenizer and chat template"
    )
    holds = bool(report["accepted"]) and tokens.get(BASE_MODEL_ID, 0) > 0
    context.check("good_file_accepted", holds, text)


async def estimate(context: DemoContext) -> None:
    """Show what the job will need and cost, and the most it can cost."""
    context.display.step("The estimate, before the job is submitted")
    context.estimate = held = dict(await context.api.estimate(request(context)))
    context.display.line(
        f"{held['trained_tokens']} tokens in {held['steps']} steps, "
        f"{held['memory_bytes'] / 1e9:.1f} GB memory, "
        f"{(held['train_gpu_ms'] + held['eval_gpu_ms']) / 60_000:.1f} slot-minutes expected"
    )
    price, most = held["amount_micro"] / 1e6, held["amount_max_micro"] / 1e6
    text = (
        f"{price:.4f} {held['currency']} expected; {most:.4f} {held['currency']} is held "
        "and can never be exceeded"
    )
    holds = 0 < held["amount_micro"] <= held["amount_max_micro"] and held["steps"] > 0
    context.check("estimate_given_before_launch", holds, text)


async def submit(context: DemoContext) -> None:
    """Submit the same job twice with one idempotency key; there is one job."""
    context.display.step("One job, submitted twice")
    endpoint = await context.api.create_endpoint({"name": "demo", "url": context.receiver.url})
    context.webhook_secret = endpoint["signing_secret"]
    first = await context.api.submit(request(context), IDEMPOTENCY_KEY)
    second = await context.api.submit(request(context), IDEMPOTENCY_KEY)
    context.job_id = first["id"]
    jobs = [job async for job in context.api.jobs()]
    context.display.line(f"{first['id']}  {first['status']}")
    same = first["id"] == second["id"] and len(jobs) == 1
    context.check("two_submissions_one_job", same, "same idempotency key, same job: no second bill")


def request(context: DemoContext) -> dict[str, Any]:
    """The body of the submission and of the estimate."""
    return {
        "model": BASE_MODEL_ID,
        "training_file": context.file_id,
        "suffix": "lighthouse",
        "seed": 7,
        **TRAINING,
    }


async def upload_and_validate(context: DemoContext, path: Any) -> Any:
    """The report about a file that was uploaded."""
    uploaded = await context.api.upload(path)
    return await poll_until(
        lambda: context.api.validation(uploaded["id"]),
        lambda report: bool(report["status"] == "done"),
        VALIDATION_S_MAX,
    )
