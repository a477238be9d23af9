"""`tunery import report`: moved models beside the old ones, as one HTML file."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from tunery.cli import _api, _options, _recipes
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.ports import LOOPBACK

if TYPE_CHECKING:
    from tunery.client import Api
    from tunery.comparison.models import HeldOutQuestion, MovedModel
    from tunery.exit_kit.folder import ExportFolder
    from tunery.exit_kit.judging import Judge
    from tunery.exit_kit.plan import PlannedJob
    from tunery.exit_kit.teacher import TeacherLedger

JUDGE_KEY: Final = "TUNERY_JUDGE_KEY"
#: the option for the folder that an account is read into
folder_of_account: Final = partial(
    click.option,
    "--to",
    "root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("openai-export"),
    show_default=True,
)


@click.command("report")
@folder_of_account(help="The folder of `tunery import openai`.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="The file to write. [moved.html in the folder]",
)
@click.option(
    "--judge", metavar="MODEL", help="A model that says which answers are better, old or new."
)
@click.option(
    "--judge-pairs",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="With --judge: pairs that people labelled; it has to agree with them first.",
)
@click.option(
    "--judge-url",
    metavar="URL",
    help="Where the judge answers, with TUNERY_JUDGE_KEY. [the stack]",
)
@_options.data_dir
@_options.as_json
def report(
    root: Path,
    output: Path | None,
    judge: str | None,
    judge_pairs: Path | None,
    judge_url: str | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Ask the moved models what the old ones were asked, and write both down as one HTML file.

    It loads nothing from anywhere. Rows and answers are in it: send it to whom they may reach. The
    same command again asks only what has no answer yet. Questions and answers go to the judge that
    you name.
    """
    from tunery.comparison.models import SHARE
    from tunery.comparison.page import comparison_page, title
    from tunery.data.tokens.chunks import write_atomically
    from tunery.exit_kit.folder import ExportFolder
    from tunery.exit_kit.plan import kept_plan
    from tunery.exit_kit.teacher import TeacherLedger

    folder, path = ExportFolder(root), output or root / "moved.html"
    if not folder.has_manifest():
        fix = "name it with --to, or run `tunery import openai` first"
        raise LocalError(f"{root} has nothing that was read from an account", fix)
    ledger = TeacherLedger(folder)
    try:
        judging = _judge(folder, judge, judge_pairs, judge_url, folders)
        with folder.locked(), _api.connect(folders) as api:
            moved = [
                _moved(api, folder, planned, ledger, judging)
                for planned in kept_plan(folder)
                if planned.status == "succeeded" and planned.tuned_model
            ]
        write_atomically(path, comparison_page(moved, ledger.spent_micro).encode())
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror}") from error
    models = [
        msgspec.to_builtins(model) | {"reaches": model.reaches, "agreement": model.agreement}
        for model in moved
    ]
    result = {"path": str(path), "title": title(moved), "share": SHARE, "models": models}
    _api.show_one(result, as_json, [("moved", title(moved)), ("report", str(path))])


def checked_url(url: str, option: str) -> str:
    """Return an address that a key may be sent to. Raises BadParameter for any other."""
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        text = f"{url} would send the key in the clear: use https"
        raise click.BadParameter(text, param_hint=option)
    return url


def _judge(
    folder: "ExportFolder",
    model: str | None,
    pairs: Path | None,
    url: str | None,
    folders: DataDir,
) -> "Judge | None":
    """Return the judge that the options name; None: they name none."""
    from tunery.exit_kit.judging import Judge

    if model is None:
        if pairs is not None or url is not None:
            raise click.UsageError("--judge-pairs and --judge-url need --judge.")
        return None
    if pairs is None:
        raise click.UsageError("--judge needs --judge-pairs: it has to agree with people first.")
    if url is not None:
        key = os.environ.get(JUDGE_KEY, "").strip() or None
        return Judge(folder, model, checked_url(url, "--judge-url"), key, pairs)
    return Judge(folder, model, *_api.address(folders), pairs)


def _moved(
    api: "Api",
    folder: "ExportFolder",
    planned: "PlannedJob",
    ledger: "TeacherLedger",
    judge: "Judge | None",
) -> "MovedModel":
    from tunery.comparison.models import Move, compared
    from tunery.exit_kit.questions import questions_of

    model, job_id = str(planned.tuned_model), folder.submitted().get(planned.job_id)
    asked = [] if planned.questions is None else questions_of(planned.questions)
    known = [
        (question, ledger.answers[model, question.id])
        for question in asked
        if (model, question.id) in ledger.answers
    ]
    job: Any = None if job_id is None else api.job(job_id)
    answers: dict[str, str] = {}
    reason: str | None = None
    if job is None:
        reason = (
            "; ".join(planned.reasons[:1]) if planned.recipe is None else "it was not submitted"
        )
    elif job["fine_tuned_model"] is None:
        reason = f"its job {job['id']} is {job['status']}"
    elif not known:
        reason = "the old model has answered nothing: --teacher-budget"
    else:
        answers, reason = _answers(
            api, folder, job["fine_tuned_model"], [question for question, _ in known]
        )
    both = [
        (question, old, answers[question.id]) for question, old in known if question.id in answers
    ]
    recipe = folder.recipes / f"{planned.job_id}.yaml"
    settings = _recipes.read_recipe(recipe).value if recipe.is_file() else {}
    measures = (settings.get("eval") or {}).get("measures") or ()
    names = [model, "" if job is None else str(job["fine_tuned_model"])]
    judged = None if judge is None or not both else judge.compare(names, both)
    gate = (job or {}).get("gate") or {}
    move = Move(
        job_id=planned.job_id,
        old_model=model,
        new_job=None if job is None else job["id"],
        new_model=None if job is None else job["fine_tuned_model"],
        questions_are=planned.questions_are,
        gate=gate.get("verdict"),
        gate_reasons=list(gate.get("reasons", ())),
        reason=reason,
    )
    return compared(move, measures, both, judged)


def _answers(
    api: "Api", folder: "ExportFolder", model: str, questions: "list[HeldOutQuestion]"
) -> tuple[dict[str, str], str | None]:
    """Return the answers of a model here, by question, and why some are missing."""
    from tunery.client import ApiRefusal
    from tunery.comparison.models import ANSWER_TOKENS_MAX
    from tunery.exit_kit.folder import append_line, read_lines

    path = folder.root / "answers.jsonl"
    answers = {
        line["question"]: line["answer"] for line in read_lines(path) if line["model"] == model
    }
    for question in questions:
        if question.id in answers:
            continue
        options: dict[str, Any] = {"temperature": 0, "max_tokens": ANSWER_TOKENS_MAX}
        options |= {"tools": question.tools} if question.tools else {}
        try:
            completion = _api.complete(api, model, question.messages, options)
        except ApiRefusal as error:
            return answers, f"{model} does not answer: {error}"
        answers[question.id] = completion["choices"][0]["message"]["content"] or ""
        append_line(path, {"model": model, "question": question.id, "answer": answers[question.id]})
    return answers, None
