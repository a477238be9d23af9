"""`tunery suggest`: what to train with a file, at what price, with which risks, and why."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from schemas.units import MICRO
from tunery.cli import _api, _options
from tunery.cli._job_view import estimate_fields
from tunery.cli.grader import read_object
from tunery.cli.job import uploaded_file

if TYPE_CHECKING:
    from tunery.client import Api

EPILOG = """\
\b
Examples:
  tunery suggest data.jsonl                  method, base model, settings, price, risks
  tunery suggest file-3f… --budget 20        at most 20 of your currency
  tunery suggest prompts.jsonl --grader grader.json
  tunery suggest data.jsonl --json | jq -r .command
"""


@click.command("suggest", epilog=EPILOG)
@click.argument("file")
@click.option(
    "--budget", type=_options.Number(0, 1e9), help="What the job may cost, in your currency."
)
@click.option(
    "--grader",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="For prompts without answers: a file with the grader of reinforcement.",
)
@_api.asking
def command(
    api: "Api", file: str, budget: float | None, grader: Path | None, as_json: bool
) -> None:
    """Suggest what to train with FILE: a local file, or the id or name of an uploaded one.

    The suggestion follows from rules and from what the service measured: the file's report, and a
    plan for each base model. Nothing is submitted; a local file is uploaded.
    """
    budget_micro = None if budget is None else round(budget * MICRO)
    file_id = uploaded_file(api, file, quiet=as_json)
    suggestion = suggest(
        api, file_id, budget_micro, None if grader is None else read_object(grader)
    )
    if as_json:
        click.echo(json.dumps(suggestion))
    else:
        _show(suggestion)
    if suggestion["model"] is None:
        raise SystemExit(1)


def suggest(
    api: "Api", file_id: str, budget_micro: int | None = None, grader: Any = None
) -> dict[str, Any]:
    """Return what to train with a checked file, each part with its reason. Raises ApiRefusal."""
    from tunery.client import ApiRefusal
    from tunery.plan.suggestion import Candidate, choose_base, method_for, risks_of

    validation = api.validation(file_id)
    report = validation["report"]
    method, why_method = method_for(validation["dialect"])
    request: dict[str, Any] = {"training_file": file_id}
    if method != "supervised":
        request["method"] = {"type": method}
    if grader is not None:
        request["method"] = {"type": method, method: {"grader": grader}}

    counted = validation.get("tokens") or ()
    drops = {tokens["base_id"] for tokens in counted if tokens["reasoning"] == "drop"}

    def request_of(base_id: str) -> dict[str, Any]:
        dropping = {"training": {"reasoning": "drop"}} if base_id in drops else {}
        return {**request, "model": base_id, **dropping}

    def candidate(base: Any) -> Candidate:
        try:
            plan = api.estimate(request_of(base["id"]), "plan")
        except ApiRefusal as refusal:
            return Candidate(base["id"], base["parameters"], None, refusal.message)
        return Candidate(base["id"], base["parameters"], plan)

    choice = choose_base((candidate(base) for base in api.bases()), budget_micro)
    chosen = choice.chosen
    plan = None if chosen is None else chosen.plan
    words = ["tunery", "job", "submit", "--file", file_id, "--method", method]
    words += [] if chosen is None else ["--model", chosen.base_id]
    words += [] if grader is None else ["--grader", "GRADER.json"]
    risks = risks_of(report, chosen, method)
    if chosen is not None and chosen.base_id in drops:
        words += ["--set", "training.reasoning=drop"]
        risk = f"the chat template of {chosen.base_id} leaves reasoning out, so it is not learnt"
        risks.append((risk, "name a template that shows it with --chat-template instead"))
    return {
        "file": file_id,
        "rows": validation["rows"],
        "method": method,
        "why_method": why_method,
        "model": None if chosen is None else chosen.base_id,
        "why_model": choice.why,
        "other_models": dict(choice.others),
        "settings": [
            {name: setting[name] for name in ("name", "value", "why")}
            for setting in (plan["settings"] if plan is not None else ())
            if setting["source"] == "rule"
        ],
        "estimate": None if plan is None else plan["estimate"],
        "risks": [{"risk": risk, "fix": fix} for risk, fix in risks],
        "request": None if chosen is None else request_of(chosen.base_id),
        "command": None if chosen is None else shlex.join(words),
    }


def _show(suggestion: dict[str, Any]) -> None:
    fields = [("file", suggestion["file"]), ("rows", f"{suggestion['rows']:,}")]
    fields.append(("method", f"{suggestion['method']}: {suggestion['why_method']}"))
    if suggestion["model"] is None:
        fields.append(("model", f"none: {suggestion['why_model']}"))
    else:
        fields.append(("model", f"{suggestion['model']}: {suggestion['why_model']}"))
        fields += [
            (name, value)
            for name, value in estimate_fields({**suggestion["estimate"], "refusal": None})
            if name not in ("settings", "model")
        ]
    _api.show_one(suggestion, False, fields)
    others = [{"model": name, "why": why} for name, why in suggestion["other_models"].items()]
    for title, items, columns in (
        ("other models", others, ("model", "why")),
        ("settings", suggestion["settings"], ("name", "value", "why")),
        ("risks", suggestion["risks"], ("risk", "fix")),
    ):
        if items:
            click.echo(f"\n{title}")
            _api.show(items, False, {column: column for column in columns})
    if suggestion["command"] is not None:
        click.echo(f"\n{suggestion['command']}")
