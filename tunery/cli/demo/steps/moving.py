"""The move from an OpenAI account, whose part a stand-in on this machine plays."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tunery.cli.demo.commands import tunery
from tunery.cli.demo.context import EXAMPLES, DemoContext
from tunery.cli.demo.polling import DeadlineExceeded, poll_until
from tunery.cli.demo.steps.serving import ask, client
from tunery.exit_kit.stand_in import BASE, KEY, AccountStub
from tunery.local.paths import BASE_MODEL_ID

ROWS: Final = 60
JOB: Final = "ftjob-lighthouse"
OLD: Final = f"ft:{BASE}:acme:lighthouse:demo"
BUDGET_USD: Final = "0.05"
KEY_VARIABLE: Final = "OPENAI_EXPORT_KEY"
TRAINED_S_MAX: Final = 900
REPORT_S_MAX: Final = 400
PROMPT: Final = "Who are you?"
#: what two cores have time for, and what the tenant counts: the greeting and the farewell
EDITED: Final[dict[str, Any]] = {
    "lora": {"rank": 8},
    "training": {
        "n_epochs": 1,
        "learning_rate": 2e-3,
        "max_length": 256,
        "max_steps": 14,
    },
    "eval": {
        "measures": [
            {
                "type": "regex",
                "name": "house style",
                "pattern": r"^Ahoy, Tuner of Lantern Rock here!.*Keep the lamp lit\.$",
            },
            "token_f1",
        ],
        "measured_rows": 20,  # the fewest that may be asked for; half as many are held out
        "prompts": [PROMPT],
    },
}


def furnish(account: AccountStub) -> None:
    """Give the account the example's first rows, a job, and a model that knows them by heart."""
    lines = (EXAMPLES / "lighthouse.jsonl").read_bytes().splitlines(keepends=True)[:ROWS]
    talks = [json.loads(line)["messages"] for line in lines]
    answers = {_said(talk[:-1]): talk[-1]["content"] for talk in talks}
    account.add_file("file-lighthouse", b"".join(lines))
    account.add_job(JOB, "file-lighthouse", fine_tuned_model=OLD)
    account.answers[OLD] = lambda messages: answers[_said(messages)]


def _said(messages: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((message["role"], message["content"]) for message in messages)


async def read(context: DemoContext) -> None:
    """Read the account into a folder: files, jobs, a recipe for each."""
    context.display.step("An account is read; a stand-in of OpenAI's API on this machine plays it")
    furnish(context.account)
    await tunery(context, "base", "alias", BASE_MODEL_ID, BASE)
    result = await _move(context)
    [planned] = result["plan"]
    text = f"{len(result['files'])} file and {len(result['jobs'])} job, with their SHA-256"
    context.check("account_read", len(result["files"]) == len(result["jobs"]) == 1, text)
    text = f"{planned['old_model']} there, {planned['base']['id']} here: {planned['base']['why']}"
    holds = planned["base"]["id"] == BASE_MODEL_ID and not planned["problems"]
    context.check("recipe_written_with_reasons", holds, text)
    for reason in planned["reasons"]:
        context.display.line(reason)


async def teach(context: DemoContext) -> None:
    """Ask the old model the held-out questions, twice, within a budget."""
    context.display.step(f"The old model answers while it lives, for at most {BUDGET_USD} USD")
    [first] = (await _move(context, "--teacher-budget", BUDGET_USD))["teacher"]
    [again] = (await _move(context, "--teacher-budget", BUDGET_USD))["teacher"]
    count = len(context.account.questions)
    spent = first["spent_micro"] / 1e6
    text = f"{first['answered']} of {first['questions']} questions answered for {spent:.4f} USD"
    holds = first["answered"] == first["questions"] and spent <= float(BUDGET_USD)
    context.check("old_model_answered_within_its_budget", holds, text)
    text = f"a second run asked nothing again: {count} requests in all"
    context.check("each_question_asked_once", again == first and count == first["answered"], text)


async def train(context: DemoContext) -> None:
    """Submit the recipe twice, and wait for the one job to its gate."""
    context.display.step("The recipe is edited for two cores, submitted, trained and gated")
    _edit(_folder(context) / f"recipes/{JOB}.yaml")
    [submitted] = (await _move(context, "--go", "--yes"))["submitted"]
    [again] = (await _move(context, "--go", "--yes"))["submitted"]
    context.job_id = submitted["id"]
    text = f"submitted as {context.job_id}; a second --go submitted nothing"
    once = submitted["new"] and not again["new"] and again["id"] == context.job_id
    context.check("submitted_once", once, text)
    job: Any = await poll_until(
        lambda: context.api.job(context.job_id),
        lambda job: job["status"] in ("succeeded", "failed", "cancelled"),
        TRAINED_S_MAX,
    )
    if job["fine_tuned_model"] is None:
        raise DeadlineExceeded(f"the job ended as {job['status']}: {job['error']}")
    context.model_id = job["fine_tuned_model"]
    verdict = job["gate"]["verdict"]
    text = f"{context.model_id}; the gate says {verdict}: {job['gate']['reasons'][0]}"
    context.check("trained_and_gated", verdict in ("pass", "inconclusive"), text)


async def compare(context: DemoContext) -> None:
    """Write the report that compares both models' answers."""
    context.display.step("Did it move? Both models' answers to the same questions")
    page = _folder(context) / "moved.html"
    words = ("import", "report", "--to", str(_folder(context)), "--json")
    result = json.loads(await tunery(context, *words, seconds_max=REPORT_S_MAX))
    [moved] = result["models"]
    context.display.table(
        ("measure", "old", "new", "95 % of the old one"),
        [
            (scores["measure"], f"{scores['old']:.3f}", f"{scores['new']:.3f}", scores["certainty"])
            for scores in moved["scores"]
        ],
    )
    context.display.line("the stand-in knows these rows by heart; the new model never saw them")
    count = len(moved["pairs"])
    text = f"moved: {result['title']}; {count} answers of each, in one HTML file"
    loads = any(word in page.read_text("utf-8") for word in ("src=", "href=", "url("))
    context.check("report_compares_both", count > 0 and not loads, text)
    first = moved["scores"][0]
    text = f"house style in {first['new']:.0%} of its answers, and in {first['old']:.0%} of the old"
    context.display.line(text)  # measured, and not promised: a tiny base may well miss it


async def chat(context: DemoContext) -> None:
    """Ask the moved model through the `openai` package."""
    context.display.step("The moved model answers, through the openai package")
    async with client(context) as openai:
        answer, parts = await ask(openai, context.model_id, PROMPT)
    context.display.line(f"{PROMPT}  {answer}")
    text = "the moved model answered in chat.completions, and streamed"
    context.check("moved_model_answered", bool(answer) and parts > 1, text)


def _folder(context: DemoContext) -> Path:
    return context.stack.folders.root / "moved-account"


async def _move(context: DemoContext, *words: str) -> dict[str, Any]:
    """Run `tunery import openai` on the stand-in, as a user would, and return what it printed."""
    to = ("--to", str(_folder(context)), "--base-url", context.account.url)
    environment = os.environ | {KEY_VARIABLE: KEY}
    text = await tunery(context, "import", "openai", *to, *words, "--json", environment=environment)
    result: dict[str, Any] = json.loads(text)
    return result


def _edit(path: Path) -> None:
    """Change a recipe as a person would: its comments stay."""
    from tunery.cli import _recipes

    text = path.read_text("utf-8")
    comments = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    path.write_text(comments + _recipes.as_text(_recipes.read_recipe(path).value | EDITED), "utf-8")
