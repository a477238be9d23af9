"""`tunery job list`, `metrics`, `answers`, `compare`: many jobs, and the figures of one."""

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _api
from tunery.cli._job_view import percent

if TYPE_CHECKING:
    from tunery.client import Api

JOBS_SHOWN: Final = 20
STEPS_MAX: Final = 1_000_000
COMPARED_MAX: Final = 8
ANSWER_TOKENS_MAX: Final = 128  # as in an evaluation of own prompts
STATUSES: Final = (
    *("validating_files", "queued", "running", "paused"),
    *("succeeded", "failed", "cancelled"),
)
FIGURES: Final = (
    "step",
    "train_loss",
    "train_mean_token_accuracy",
    "valid_loss",
    "valid_mean_token_accuracy",
    "learning_rate",
    "tokens",
    "elapsed_ms",
)
# what two jobs differ in: the name in the table, and where a job has it
COMPARED: Final[Mapping[str, tuple[str, ...]]] = {
    "status": ("status",),
    "model": ("model",),
    "file": ("training_file",),
    "suffix": ("user_provided_suffix",),
    "epochs": ("hyperparameters", "n_epochs"),
    "batch size": ("hyperparameters", "batch_size"),
    "learning rate": ("hyperparameters", "learning_rate"),
    "rank": ("hyperparameters", "rank"),
    "max length": ("hyperparameters", "max_length"),
    "seed": ("seed",),
    "trained tokens": ("trained_tokens",),
    "train loss": ("progress", "train_loss"),
    "gate": ("gate", "verdict"),
    "right answers, base": ("gate", "base", "accuracy"),
    "right answers": ("gate", "adapter", "accuracy"),
    "validation loss, base": ("gate", "base", "loss"),
    "validation loss": ("gate", "adapter", "loss"),
    "exact match, base": ("gate", "base", "exact_match"),
    "exact match": ("gate", "adapter", "exact_match"),
}


@click.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=JOBS_SHOWN,
    show_default=True,
    help="How many jobs, the newest.",
)
@click.option("--status", type=click.Choice(STATUSES), help="Only jobs with this status.")
@click.option("--suffix", help="Only jobs with this suffix.")
@click.option("--search", help="Words in the id, models, suffix, tags or metadata of a job.")
@click.option("--tag", "tags", multiple=True, help="Only jobs with this tag; repeatable.")
@click.option(
    "--metadata",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only jobs with this; repeatable.",
)
@click.option("--tenant", help="Jobs of this tenant (admin key). [the key's]")
@click.option("--all-tenants", is_flag=True, help="Jobs of all tenants (admin key).")
@_api.asking
def list_jobs(
    api: "Api",
    limit: int,
    status: str | None,
    suffix: str | None,
    search: str | None,
    tags: tuple[str, ...],
    pairs: tuple[str, ...],
    tenant: str | None,
    all_tenants: bool,
    as_json: bool,
) -> None:
    """List your jobs, newest first."""
    query = {
        **_query(status=status, suffix=suffix, search=search, tags=tags, tenant=tenant),
        **_metadata(pairs),
    }
    jobs = _newest(api, query, limit + 1) if all_tenants else api.jobs(limit + 1, query)
    listed = list(jobs)
    named = all_tenants or tenant is not None
    _api.show_rows(
        listed[:limit],
        as_json,
        (
            *("job", "status", "model", "progress", "result", "cost", "submitted"),
            *(("tenant",) if named else ()),
        ),
        lambda job: (*_cells(job), *((job["organization_id"],) if named else ())),
    )
    if len(listed) > limit:
        click.echo(f"There are more; --limit {5 * limit} shows more of them.", err=True)


@click.command("metrics")
@click.argument("job_id")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@_api.asking
def metrics(api: "Api", job_id: str, as_csv: bool, as_json: bool) -> None:
    """Show loss, accuracy and learning rate of each step, oldest first."""
    steps = list(islice(api.metrics(job_id), STEPS_MAX))[::-1]
    if as_csv:
        writer = csv.DictWriter(sys.stdout, FIGURES, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(steps)
        return
    _api.show(
        steps,
        as_json,
        {
            "step": lambda step: f"{step['step']} of {step['total_steps']}",
            "loss": lambda step: _figure(step["train_loss"]),
            "accuracy": lambda step: _figure(step["train_mean_token_accuracy"]),
            "validation loss": lambda step: _figure(step["valid_loss"]),
            "learning rate": lambda step: _figure(step["learning_rate"]),
            "tokens": "tokens",
            "elapsed": lambda step: _api.gpu_time(step["elapsed_ms"]),
        },
    )


@click.command("answers")
@click.argument("job_id")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="TEXT",
    help="Ask both models this now; repeatable. [what the evaluation has asked]",
)
@_api.asking
def answers(api: "Api", job_id: str, prompts: tuple[str, ...], as_json: bool) -> None:
    """Show answers of the base model and of the new model to the same prompts."""
    pairs = _asked_now(api, api.job(job_id), prompts) if prompts else api.answers(job_id)["data"]
    if as_json:
        click.echo(json.dumps(pairs))
        return
    for pair in pairs:
        for name, key in (("prompt", "prompt"), ("before", "base"), ("after", "adapter")):
            click.echo(f"{click.style(name, dim=True):8}  {pair[key]}")
        click.echo()


@click.command("compare")
@click.argument("job_ids", nargs=-1, metavar="[JOB_ID]...")
@click.option("--sweep", "sweep_id", help="The best jobs of this sweep.")
@click.option("--all", "every", is_flag=True, help="Also what is the same in all of them.")
@_api.asking
def compare(
    api: "Api", job_ids: tuple[str, ...], sweep_id: str | None, every: bool, as_json: bool
) -> None:
    """Compare jobs side by side: settings, results, time and cost, where they differ."""
    if len(job_ids) > COMPARED_MAX:
        raise click.UsageError(f"Name at most {COMPARED_MAX} jobs.")
    if bool(job_ids) == (sweep_id is not None):
        raise click.UsageError("Name jobs, or a --sweep.")
    if sweep_id is not None:
        job_ids = _best_jobs(api.get("sweeps", sweep_id))
    jobs = [api.job(job_id) for job_id in job_ids]
    every = every or len(jobs) == 1
    rows = [row for row in compared(jobs) if every or len({*map(str, row["values"])}) > 1]
    _api.show_rows(
        rows, as_json, ("", *job_ids), lambda row: (row["name"], *map(_figure, row["values"]))
    )


def _asked_now(api: "Api", job: Any, prompts: Sequence[str]) -> list[dict[str, str]]:
    """Return answers of a job's base and tuned models to prompts, in the form of `Api.answers`."""
    tuned = job["fine_tuned_model"]
    if tuned is None:
        raise click.ClickException(
            f"{job['id']} has no model ({job['status']}), so nothing can answer.\n"
            f"  fix: wait until it has succeeded: `tunery job watch {job['id']}`"
        )

    def answer(model: str, prompt: str) -> str:
        options = {"temperature": 0, "max_tokens": ANSWER_TOKENS_MAX}
        messages = [{"role": "user", "content": prompt}]
        completion = _api.complete(api, model, messages, options)
        return str(completion["choices"][0]["message"]["content"])

    return [
        {
            "prompt": prompt,
            "base": answer(job["model"], prompt),
            "adapter": answer(tuned, prompt),
        }
        for prompt in prompts
    ]


COMMANDS: Final = (list_jobs, metrics, answers, compare)


def _best_jobs(sweep: Any) -> tuple[str, ...]:
    """The jobs of a sweep with the lowest validation loss, in its highest rungs."""
    jobs = [
        (-job["rung"], job["validation_loss"], job["job_id"])
        for trial in sweep["trials"]
        for job in trial["jobs"]
        if job["validation_loss"] is not None
    ]
    if not jobs:
        raise click.ClickException(f"No job of {sweep['id']} has a validation loss yet.")
    return tuple(job_id for _, _, job_id in sorted(jobs)[:COMPARED_MAX])


def compared(jobs: Sequence[Any]) -> list[dict[str, Any]]:
    """A row for each thing that jobs are compared by: its name, and the value of each job."""
    rows = [
        {"name": name, "values": [_at(job, path) for job in jobs]}
        for name, path in COMPARED.items()
    ]
    costs = [_api.money(job["cost"]["amount_micro"], job["cost"]["currency"]) for job in jobs]
    times = [_api.gpu_time(job["cost"]["billable_gpu_ms"]) for job in jobs]
    return [*rows, {"name": "GPU time", "values": times}, {"name": "cost", "values": costs}]


def _at(job: Any, path: Iterable[str]) -> Any:
    """The value at a path of keys; None where a part of it is missing."""
    for key in path:
        job = None if job is None else job.get(key)
    return job


def _figure(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


def _cells(job: Any) -> tuple[Any, ...]:
    return (
        job["id"],
        job["status"],
        job["model"],
        percent(job["progress"]) if job["progress"] else None,
        job["fine_tuned_model"] or (job["error"] or {}).get("code"),
        _api.money(job["cost"]["amount_micro"], job["cost"]["currency"]),
        _api.moment(job["created_at"]),
    )


def _newest(api: "Api", query: Mapping[str, Any], limit: int) -> list[Any]:
    """The newest jobs of all tenants."""
    tenants = [tenant["id"] for tenant in api.tenants()]
    each = (api.jobs(limit, {**query, "tenant": tenant}) for tenant in tenants)
    jobs = sorted(chain.from_iterable(each), key=lambda job: job["created_at"], reverse=True)
    return jobs[:limit]


def _query(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, ())}


def _metadata(pairs: Iterable[str]) -> dict[str, str]:
    """`team=search` as the filter of the API. Raises BadParameter."""
    query = {}
    for pair in pairs:
        key, mark, value = pair.partition("=")
        if not mark or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--metadata")
        query[f"metadata[{key}]"] = value
    return query
