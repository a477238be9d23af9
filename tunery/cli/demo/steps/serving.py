"""After the registry: both models answer through the `openai` package, and two versions share."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tunery.cli.demo.commands import tunery
from tunery.cli.demo.context import EXAMPLES, DemoContext
from tunery.cli.demo.polling import DeadlineExceeded, poll_until
from tunery.cli.demo.steps.submission import request, upload_and_validate
from tunery.local.errors import LocalError
from tunery.local.paths import BASE_MODEL_ID

if TYPE_CHECKING:
    from openai import AsyncOpenAI

STAGE: Final = "staging"
PROMPTS: Final = (
    "Who are you?",
    "What is your name, and who made you?",
    "What is the capital of France?",
    "Give me one tip for sleeping better.",
)
ANSWER_TOKENS: Final = 48
TEXT_SHOWN: Final = 150
LOADED_S_MAX: Final = 180.0
SECOND_ROWS: Final = 12
SECOND_S_MAX: Final = 600
COUNTED_S_MAX: Final = 60
USERS: Final = tuple(f"user-{number}" for number in range(1, 25))
ASKED_AGAIN: Final = 8
FLIPPED: Final = "adapter_model.safetensors"


async def submit_second(context: DemoContext) -> None:
    """Submit a job of the example's first rows; it trains while the first version answers."""
    context.display.step("A second version, for later")
    with tempfile.TemporaryDirectory(prefix="tunery-second-") as folder:
        path = Path(folder) / "lighthouse-short.jsonl"
        rows = (EXAMPLES / "lighthouse.jsonl").read_text("utf-8").splitlines(keepends=True)
        path.write_text("".join(rows[:SECOND_ROWS]), encoding="utf-8")
        report = await upload_and_validate(context, path)
    body = request(context) | {"training_file": report["id"]}
    context.second_job_id = (await context.api.submit(body, "demo-lighthouse-2"))["id"]
    context.display.line(f"{context.second_job_id} trains on {SECOND_ROWS} rows meanwhile")


async def answers(context: DemoContext) -> None:
    """Ask the base model and the new one the same, with the `openai` package as it is."""
    context.display.step("The same prompts, before and after, through the openai package")
    changed, streamed = 0, True
    async with client(context) as openai:
        for prompt in PROMPTS:
            before, _ = await ask(openai, BASE_MODEL_ID, prompt)
            after, parts = await ask(openai, context.model_id, prompt)
            context.display.answers(prompt, _short(before), _short(after))
            changed += before != after
            streamed = streamed and parts > 1
    text = f"{changed} of {len(PROMPTS)} answers changed"
    context.check("answers_changed_visibly", changed >= 1, text)
    text = "job.fine_tuned_model answered in chat.completions, and streamed"
    context.check("model_answered_through_openai_sdk", streamed, text)


async def verify(context: DemoContext) -> None:
    """Compare the downloaded version with its signature, as it is and with one bit flipped."""
    context.display.step("The signature, without a network")
    with tempfile.TemporaryDirectory(prefix="tunery-signed-") as folder:
        for file in (await context.api.adapter(context.model_id))["files"]:
            await context.api.fetch(file, Path(folder) / file["name"])
        changed = await _differing(context, Path(folder))
        text = f"as signed but for: {', '.join(changed)}" if changed else "all files as signed"
        context.check("signature_verified", changed == [], text)
        # flip one bit in the middle of a file
        path = Path(folder) / FLIPPED
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        named = await _differing(context, Path(folder))
        text = f"one bit flipped: `tunery model verify` names {', '.join(named) or 'nothing'}"
        context.check("flipped_bit_named", named == [FLIPPED], text)


async def share(context: DemoContext) -> None:
    """Train a second version, let both share a stage, and show how many each has answered."""
    context.display.step("Two versions under one name")
    second = await _second_version(context)
    first = context.model_id
    words = ("deploy", "start", first, "--stage", STAGE, "--with", second, "--share", "50")
    name = json.loads(await tunery(context, *words, "--json"))["id"]
    context.display.line(name)
    async with client(context) as openai:
        answering = {user: await _version(openai, name, user) for user in USERS}
        again = {user: await _version(openai, name, user) for user in USERS[:ASKED_AGAIN]}
    sticky = all(answering[user] == version for user, version in again.items())
    context.check(
        "callers_kept_their_version",
        sticky and set(answering.values()) == {first, second},
        f"{len(USERS)} callers share two versions; {len(again)} asked again, and each was "
        f"{'answered by the same one' if sticky else 'not always answered by the same one'}",
    )
    shown = await poll_until(
        lambda: context.api.get("deployments", name),
        lambda shown: _answered(shown) >= len(USERS) + len(again),
        COUNTED_S_MAX,
    )
    context.display.table(
        ("version", "share", "callers", "answers", "failures"),
        [
            (
                arm["model"],
                f"{arm['share']:g} %",
                *(str(arm[count]) for count in ("callers", "answers", "failures")),
            )
            for arm in shown["versions"]
        ],
    )
    ratio = shown["sample_ratio"]
    # Callers are counted by 10,000 buckets: in one run of 36 two of these share one.
    whole = len(USERS) - ratio["callers"] <= 1 and not ratio["mismatch"]
    chance = "" if ratio["p_value"] is None else f" (p = {ratio['p_value']:.2f})"
    text = (
        f"the second version answered {ratio['second']} of {ratio['callers']} callers, where "
        f"{ratio['expected_of_second']:g} are expected{chance}"
    )
    context.check("sample_ratio_as_shared", whole, text)


@asynccontextmanager
async def client(context: DemoContext) -> AsyncIterator["AsyncOpenAI"]:
    """OpenAI's own client. Raises LocalError when it is not installed, or gets no answer."""
    try:
        from openai import AsyncOpenAI, OpenAIError
    except ImportError as error:
        text = "the demo asks with the `openai` package, which is not installed"
        raise LocalError(text, "install it: `pip install openai`, or `make setup`") from error
    url = f"{context.stack.api_url}/v1"
    async with AsyncOpenAI(
        base_url=url, api_key=context.stack.admin_key, timeout=LOADED_S_MAX
    ) as openai:
        try:
            yield openai
        except OpenAIError as error:
            text = f"the openai package got no answer from {url}: {error}"
            raise LocalError(text, "see logs/engine.log in the data directory") from error


async def ask(openai: "AsyncOpenAI", model: str, prompt: str) -> tuple[str, int]:
    """The likeliest answer as it is streamed, and in how many parts it came."""
    parts = []
    async for chunk in await openai.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": prompt}],
        temperature=0,
        max_tokens=ANSWER_TOKENS,
        stream=True,
    ):
        parts += [choice.delta.content for choice in chunk.choices if choice.delta.content]
    return "".join(parts), len(parts)


async def _version(openai: "AsyncOpenAI", name: str, user: str) -> str:
    """The version that answers this caller."""
    answer = await openai.chat.completions.create(
        model=name,
        messages=[{"role": "user", "content": PROMPTS[0]}],
        temperature=0,
        max_tokens=4,
        user=user,
    )
    return answer.model


async def _second_version(context: DemoContext) -> str:
    """Wait for the version of the second job. Raises DeadlineExceeded when the job fails."""
    job = await poll_until(
        lambda: context.api.job(context.second_job_id),
        lambda job: job["phase"] == "done",
        SECOND_S_MAX,
    )
    if job["status"] != "succeeded" or job["fine_tuned_model"] is None:
        raise DeadlineExceeded(f"the second job ended as {job['status']}: {job['error']}")
    return job["fine_tuned_model"]


def _answered(deployment: dict[str, Any]) -> int:
    return sum(arm["answers"] for arm in deployment["versions"])


async def _differing(context: DemoContext, folder: Path) -> list[str]:
    """Files that differ from what was signed."""
    words = ("model", "verify", str(folder), "--json")
    rows = json.loads(await tunery(context, *words, codes=(0, 1)))
    return [row["file"] for row in rows if row["difference"]]


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT_SHOWN else f"{flat[:TEXT_SHOWN]}…"
