"""`tunery sweep`: many configurations of a job under one budget."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _api, _options, _recipes
from tunery.cli._yaml import YamlDocument
from tunery.cli.job import uploaded_files
from tunery.plan.sweeps import COLOCATE_MAX

if TYPE_CHECKING:
    from tunery.client import Api

VERSION: Final = 1
JOB: Final = "job"
EPILOG: Final = """\
\b
Examples:
  tunery sweep run sweep.yaml
  tunery sweep list
  tunery sweep show sweep-91…          its configurations, the best one first
  tunery sweep cancel sweep-91…        no more jobs, and the open ones end
  tunery job compare --sweep sweep-91…
"""


@click.group("sweep", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Try many configurations of a job under one budget."""


@command.command("run")
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--colocate",
    type=click.IntRange(1, COLOCATE_MAX),
    help="Configurations that one job trains in turns, at most. [as the file says, or 1]",
)
@click.option("--idempotency-key", help="Submissions with the same key are one sweep. [random]")
@_api.asking
def run(
    api: "Api",
    path: Path,
    colocate: int | None,
    idempotency_key: str | None,
    as_json: bool,
) -> None:
    """Submit the sweep of a YAML file: a job, and the values to try."""
    document = _recipes.read_recipe(path)
    sweep = checked_sweep(document, path)
    if colocate is not None:
        sweep["colocate"] = colocate
    job = uploaded_files(api, sweep[JOB], quiet=as_json)
    body = {**sweep, JOB: job}
    shown = api.send("/sweeps", body, idempotency_key or str(uuid.uuid4()))
    _show(shown, as_json)


def _show(sweep: Any, as_json: bool) -> None:
    budget = [
        None if sweep["max_gpu_hours"] is None else f"{sweep['max_gpu_hours']:g} GPU-h",
        _api.money(sweep["max_amount_micro"], sweep["currency"]) or None,
    ]
    rungs = [f"{steps} steps" for steps in sweep["rungs"]]
    fields = [
        ("sweep", sweep["id"]),
        ("status", sweep["status"]),
        ("reason", sweep["reason"]),
        ("method", sweep["method"]),
        ("model", sweep["model"]),
        ("rung", f"{sweep['rung'] + 1} of {len(rungs)}: {', '.join(rungs)}" if rungs else None),
        ("best", sweep["best_job_id"]),
        ("billed", _api.money(sweep["amount_micro"], sweep["currency"])),
        ("budget", ", ".join(bound for bound in budget if bound)),
    ]
    _api.show_one(sweep, as_json, fields)
    if as_json:
        return
    click.echo()
    _api.show(
        ranked_jobs(sweep),
        False,
        {
            "job": "job_id",
            "status": lambda row: (
                row["status"] or (row["skipped"] and f"skipped: {row['skipped']}") or "not yet"
            ),
            "validation loss": lambda row: _api.figure(row["validation_loss"]),
            **({"rung": lambda row: row["rung"] + 1} if rungs else {}),
            "settings": lambda row: ", ".join(
                f"{name} {value}" for name, value in row["values"].items()
            ),
            "cost": lambda row: _cost(row, sweep["currency"]),
        },
    )


@command.command("show")
@click.argument("sweep_id")
@_api.answered(_show)
def show(api: "Api", sweep_id: str) -> Any:
    """Show a sweep: its configurations by validation loss, the best one first."""
    return api.get("sweeps", sweep_id)


_api.add_list(
    command,
    "List your sweeps, newest first.",
    lambda api: api.get("sweeps")["data"],
    {
        "sweep": "id",
        "status": "status",
        "method": "method",
        "model": "model",
        "configurations": lambda sweep: len(sweep["trials"]),
        "best": "best_job_id",
        "cost": lambda sweep: _api.money(sweep["amount_micro"], sweep["currency"]),
        "submitted": lambda sweep: _api.moment(sweep["created_at"]),
    },
)


@command.command("cancel")
@click.argument("sweep_id")
@_api.answered(_show)
def cancel(api: "Api", sweep_id: str) -> Any:
    """End a sweep: no more jobs are submitted, and those that are open are cancelled."""
    from tunery.client.wire import path_of

    return api.send(path_of(("sweeps", sweep_id, "cancel")), {}, str(uuid.uuid4()))


def checked_sweep(document: YamlDocument, path: Path) -> dict[str, Any]:
    """The body of a sweep. Raises RecipeError with all that is wrong with its file."""
    from services.gateway.jobs.domain.requested import RequestProblem
    from services.gateway.jobs.recipes import STAND_INS, nearest, recipe_problems
    from services.gateway.jobs.sweep_bodies import SweepRequest

    sweep = document.value
    known = ("version", *SweepRequest.model_fields)
    problems = [RequestProblem(name, nearest(name, known)) for name in sweep if name not in known]
    if sweep.get("version") != VERSION:
        problems.append(RequestProblem("version", f"must be {VERSION}"))
    job = sweep.get(JOB)
    if isinstance(job, Mapping):
        problems += [
            RequestProblem(f"{JOB}.{problem.param}", problem.message)
            for problem in recipe_problems({**dict.fromkeys(STAND_INS), "version": 1, **job})
        ]
        document.value[JOB] = _recipes.from_folder(dict(job), path.parent)
    else:
        problems.append(RequestProblem(JOB, "is required: the fields of a recipe"))
    _recipes.refuse(problems, path, document)
    return {name: value for name, value in sweep.items() if name != "version"}


def _cost(row: Mapping[str, Any], currency: str) -> str:
    """Return the cost of a row's job, with the number of configurations if it trained several."""
    money, count = _api.money(row["amount_micro"], currency), row["configurations"]
    return f"{money} for {count}" if money and count > 1 else money


def ranked_jobs(sweep: Any) -> list[dict[str, Any]]:
    """Jobs that were or will be submitted: the highest rung first, in it the lowest loss."""
    jobs = [
        {**job, "values": trial["values"]}
        for trial in sweep["trials"]
        for job in trial["jobs"]
        if job["status"] is not None or job["skipped"] or job["rung"] == 0
    ]
    return sorted(
        jobs,
        key=lambda job: (
            -job["rung"],
            job["validation_loss"] is None,
            job["validation_loss"] or 0,
        ),
    )
