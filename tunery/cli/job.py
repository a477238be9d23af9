"""`tunery job`: fine-tuning jobs."""

import hashlib
import json
import uuid
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from tunery.cli import _api, _job_files, _options, _recipes
from tunery.cli._job_lists import COMMANDS
from tunery.cli._job_mirror import mirror
from tunery.cli._job_report import report
from tunery.cli._job_view import earlier_job, estimate_fields, job_fields
from tunery.cli._plan_view import show_plan
from tunery.cli._queue_view import queue_fields, start_columns
from tunery.cli.grader import read_object
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tunery.client import Api

EVENTS_SHOWN: Final = 50
FILES_COMPARED: Final = 1_000  # the newest
DUPLICATE: Final = "Cancel it if that was not meant."
INTERRUPTED: Final = 130  # the exit code of a program that SIGINT ends
EPILOG = """\
\b
Examples:
  tunery job estimate --model smollm2-135m-instruct --file file-3f…
  tunery job submit --model smollm2-135m-instruct --file data.jsonl --suffix demo --watch
  tunery job submit --model smollm2-135m-instruct --file file-3f… --set lora.rank=8
  tunery job submit --model smollm2-135m-instruct --file file-3f… --prompt "Who are you?"
  tunery job submit --model smollm2-135m-instruct --file data.jsonl --mix chat.jsonl=0.3
  tunery job submit --recipe faq.yaml --epochs 5
  tunery job plan --recipe faq.yaml    what would run, where, when, why, at what price
  tunery job recipe ftjob-91… > faq.yaml
  tunery job list
  tunery job list --status failed --metadata team=search
  tunery job list --all-tenants        of an operator
  tunery job show ftjob-91…            its status, cost and verdict
  tunery job why ftjob-91…             why it waits, for what, until when
  tunery job watch ftjob-91…
  tunery job pause ftjob-91…
  tunery job resume ftjob-91…
  tunery job cancel ftjob-91…
  tunery job events ftjob-91…
  tunery job logs ftjob-91…
  tunery job metrics ftjob-91…         loss and accuracy of each step
  tunery job metrics ftjob-91… --csv > steps.csv
  tunery job mirror ftjob-91… --tensorboard runs
  tunery job mirror ftjob-91… --mlflow http://127.0.0.1:5000
  tunery job answers ftjob-91…         before and after, to the same prompts
  tunery job answers ftjob-91… --prompt "Who keeps the lamp?"
  tunery job compare ftjob-91… ftjob-a4…
  tunery job compare --sweep sweep-91…
  tunery job report ftjob-91… --output job.html   all of it, in one file
  tunery job checkpoints ftjob-91…
  tunery job cost ftjob-91…
  tunery job statement ftjob-91…       each slice and credit with its event in the log
"""
SETTINGS: Final = """\
\b
--set takes any field of the API's body: lora.rank, lora.alpha, lora.dropout,
training.learning_rate, training.max_length, training.checkpoint_every_steps, …
"""


@click.group("job", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Submit, follow and stop fine-tuning jobs."""


for _listing in (*COMMANDS, mirror, report):
    command.add_command(_listing)


REQUEST_OPTIONS: Final = (
    click.option(
        "--recipe",
        "recipe_path",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="A recipe in YAML. The other options replace what it says.",
    ),
    click.option("--model", help="Base model; see `tunery base list`."),
    click.option(
        "--file",
        "training_file",
        help="A file's id or name (faq@2), or a path to upload first.",
    ),
    click.option("--validation-file", help="Likewise, for validation. [a part of --file]"),
    click.option(
        "--mix",
        "mixture",
        multiple=True,
        metavar="FILE[=WEIGHT]",
        help="A further file, and how often an epoch sees its rows; repeatable. [weight 1]",
    ),
    click.option("--suffix", help="Becomes part of the new model's name."),
    click.option("--tag", "tags", multiple=True, help="A label, to list jobs by; repeatable."),
    click.option(
        "--epochs", "n_epochs", type=int, help="How often each row is seen. [by the data]"
    ),
    click.option("--batch-size", type=int, help="Packed rows of a step. [by the data]"),
    click.option(
        "--learning-rate-multiplier",
        type=_options.Number(0, min_open=True),
        help="Times the learning rate that suits the model. [1]",
    ),
    click.option(
        "--method",
        help="dpo, simpo, orpo, cpo, reward of pairs; kto of labels; reinforcement of prompts. "
        "[supervised]",
    ),
    click.option(
        "--grader",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with the grader of reinforcement, as `tunery grader` takes it.",
    ),
    click.option(
        "--beta",
        type=_options.Number(0, min_open=True),
        help="How closely dpo stays to the base model. [0.1]",
    ),
    click.option(
        "--chat-template",
        "template",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A Jinja template in place of the base model's.",
    ),
    click.option(
        "--eot-token",
        "eot_tokens",
        multiple=True,
        metavar="TOKEN",
        help="A token of its vocabulary that ends a turn; repeatable.",
    ),
    click.option(
        "--seed",
        type=int,
        help="The same seed, the same adapter. [random]",
    ),
    click.option("--accelerator", help="Only nodes of this model, like h200. [any]"),
    click.option(
        "--spot/--no-spot",
        default=None,
        help="Prefer spot machines, or never use them. [only where no other fits]",
    ),
    click.option(
        "--tolerate",
        "tolerations",
        multiple=True,
        help="It may run on nodes with this taint; repeatable.",
    ),
    click.option("--domain", help="Only nodes of this fabric domain, like rack-3. [any]"),
    click.option(
        "--domain-wait",
        "domain_wait_minutes",
        type=click.IntRange(min=1),
        metavar="MINUTES",
        help="How long it waits for --domain before it takes any. [as long as it takes]",
    ),
    click.option(
        "--prompt",
        "prompt",
        multiple=True,
        metavar="TEXT",
        help="Both models answer it; repeatable; see `job answers`. [the bundled ones]",
    ),
    click.option(
        "--prompts",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file of such prompts: one in a line, or a JSON array.",
    ),
    click.option(
        "--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Any other field."
    ),
)


def _request(function: "Callable[..., Any]") -> "Callable[..., Any]":
    """Add the options that make a request body."""
    for option in reversed(REQUEST_OPTIONS):
        function = option(function)
    return function


@command.command("submit", epilog=SETTINGS)
@_request
@click.option("--idempotency-key", help="Submissions with the same key are one job. [random]")
@click.option(
    "--print-recipe", is_flag=True, help="Print all of that as a recipe, and submit nothing."
)
@click.option(
    "--allow-duplicate", is_flag=True, help="Say nothing of an earlier job with the same settings."
)
@click.option("--watch", "watching", is_flag=True, help="Follow the job until it ends.")
@_options.data_dir
@_options.as_json
def submit(
    folders: DataDir,
    as_json: bool,
    idempotency_key: str | None,
    print_recipe: bool,
    allow_duplicate: bool,
    watching: bool,
    **requested: Any,
) -> None:
    """Submit a job. Returns when it is accepted and its budget is held."""
    recipe = _recipe(**requested)
    if print_recipe:
        _show_recipe({"version": 1, **recipe}, as_json)
        return
    with _api.connect(folders) as api:
        body = uploaded_files(api, recipe, quiet=as_json)
        if body.get("dry_run") is True:
            _show_estimate(api.estimate(body), as_json)
            return
        job = api.submit(body, idempotency_key or str(uuid.uuid4()))
        earlier = earlier_job(job.get("duplicate_of"))
        if earlier is not None and not allow_duplicate:
            click.echo(f"Same model, data and settings as {earlier}. {DUPLICATE}", err=True)
        if watching:
            _follow(api, job["id"], as_json)
        else:
            _api.show_one(job, as_json, job_fields(job))


@command.command("estimate", epilog=SETTINGS)
@_request
@_api.asking
def estimate(api: "Api", as_json: bool, **requested: Any) -> None:
    """Show the tokens, memory, time and price of a job without submitting it.

    The checks are those of a submission: if it would be refused, the reason comes first, and the
    exit code is 1.
    """
    recipe = _recipe(**requested)
    forecast = api.estimate(uploaded_files(api, recipe, quiet=as_json))
    _show_estimate(forecast, as_json)


@command.command("plan", epilog=SETTINGS)
@_request
@_api.asking
def plan(api: "Api", as_json: bool, **requested: Any) -> None:
    """Show what would run, where, when, why and at what price. Nothing is submitted or recorded.

    The exit code is 1 if the job would be refused.
    """
    recipe = _recipe(**requested)
    planned = api.estimate(uploaded_files(api, recipe, quiet=as_json), "plan")
    if as_json:
        click.echo(json.dumps(planned))
    else:
        show_plan(planned)
    if not planned["allowed_to_proceed"]:
        raise SystemExit(1)


def _show_recipe(recipe: dict[str, Any], as_json: bool) -> None:
    click.echo(json.dumps(recipe) if as_json else _recipes.as_text(recipe), nl=as_json)


@command.command("recipe")
@click.argument("job_id")
@_api.answered(_show_recipe)
def recipe_of_job(api: "Api", job_id: str) -> Any:
    """Print the recipe of a job: all of its settings, so that it can be run again."""
    return api.get("fine_tuning", "jobs", job_id, "recipe")["recipe"]


@command.command("show")
@click.argument("job_id")
@_api.shown(job_fields)
def show(api: "Api", job_id: str) -> Any:
    """Show a job: its status, why it waits, its cost and the verdict of the gate."""
    return api.job(job_id)


@command.command("why")
@click.argument("job_id")
@_api.asking
def why(api: "Api", job_id: str, as_json: bool) -> None:
    """Show why a job waits, what lets it go on, when it is expected to begin, and what would start
    it sooner.
    """
    show_wait(api, job_id, as_json)


def show_wait(api: "Api", job_id: str, as_json: bool) -> None:
    """Print why a job waits."""
    explained = api.explain(job_id)
    starts = api.get("fine_tuning", "jobs", job_id, "starts")["data"] if explained["queue"] else []
    fields = queue_fields(explained["queue"], explained["at"]) or [("waiting", "no")]
    head = [("job", explained["job_id"]), ("status", explained["status"])]
    _api.show_one({**explained, "starts": starts}, as_json, [*head, *fields])
    if starts and not as_json:
        click.echo()
        _api.show(starts, False, start_columns(explained["at"]))


@command.command("watch")
@click.argument("job_id")
@_api.asking
def watch(api: "Api", job_id: str, as_json: bool) -> None:
    """Follow a job until it ends; exit code 0 only when it succeeded."""
    _follow(api, job_id, as_json)


def _change(name: str, doc: str) -> None:
    @command.command(name, help=doc)
    @click.argument("job_id")
    @_api.shown(job_fields)
    def changed(api: "Api", job_id: str) -> Any:
        return api.change(job_id, name)


_change("cancel", "End a job. Its use so far is billed, and the rest of the hold is released.")
_change("pause", "Stop a job after a checkpoint. It keeps its hold and can be resumed.")
_change("resume", "Continue a paused job from its last checkpoint.")


@command.command("events")
@click.argument("job_id")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=EVENTS_SHOWN,
    show_default=True,
    help="How many events, the newest.",
)
@_api.listed(
    {
        "when": lambda event: _api.moment(event["created_at"]),
        "level": "level",
        "message": "message",
    }
)
def events(api: "Api", job_id: str, limit: int) -> Any:
    """Show the newest events of a job, in the order in which they happened."""
    return list(api.events(job_id, limit))[::-1]


@command.command("logs")
@click.argument("job_id")
@_api.asking
def logs(api: "Api", job_id: str, as_json: bool) -> None:
    """Print the log lines of training and evaluation until the job has ended."""
    for line in api.follow(job_id, "logs"):
        text = (
            json.dumps(line) if as_json else f"{_api.moment(line['created_at'])}  {line['message']}"
        )
        click.echo(text)


@command.command("checkpoints")
@click.argument("job_id")
@_api.listed(
    {
        "checkpoint": "id",
        "step": "step_number",
        "attempt": "attempt",
        "size": lambda checkpoint: _api.size(checkpoint["bytes"]),
        "loss": lambda checkpoint: _api.figure(checkpoint["metrics"].get("train_loss")),
        "when": lambda checkpoint: _api.moment(checkpoint["created_at"]),
    }
)
def checkpoints(api: "Api", job_id: str) -> Any:
    """Show the accepted checkpoints of a job, newest first."""
    return api.checkpoints(job_id)


@command.command("cost")
@click.argument("job_id")
@_api.asking
def cost(api: "Api", job_id: str, as_json: bool) -> None:
    """Show every usage line of a job, and their sum at the job's price."""
    usage = api.cost(job_id)
    if as_json:
        click.echo(json.dumps(usage))
        return
    _api.show(
        usage["lines"],
        False,
        {
            "kind": "kind",
            "attempt": "attempt",
            "role": "role",
            "used": lambda line: _api.hours(line["used_gpu_ms"]),
            "billed": lambda line: _api.hours(line["billable_gpu_ms"]),
            "cause": "cause",
        },
    )
    state = "final" if usage["final"] else "so far"
    total = _api.money(usage["amount_micro"], usage["currency"])
    click.echo(f"{state}: {_api.hours(usage['net_gpu_ms'])}, {total}")


@command.command("statement")
@click.argument("job_id")
@click.option("--tenant", help="The job's tenant, for operators. [the key's]")
@_api.listed(
    {
        "hour": lambda line: _api.hour(line["hour_start"]),
        "kind": lambda line: (
            line["kind"] if line["cause"] is None else f"{line['kind']}: {line['cause']}"
        ),
        "attempt": "attempt",
        "role": "role",
        "used": lambda line: _api.gpu_time(line["used_gpu_ms"]),
        "billed": lambda line: _api.gpu_time(line["billable_gpu_ms"]),
        "event": lambda line: "{topic}/{partition}@{offset}".format(**line["event"]),
    }
)
def statement(api: "Api", job_id: str, tenant: str | None) -> Any:
    """Show every slice of use and credit of a job with its event: topic, partition and offset."""
    return api.statement(job_id, tenant)


def _show_estimate(forecast: Any, as_json: bool) -> None:
    """Print an estimate; ends the process with 1 if the job would be refused."""
    _api.show_one(forecast, as_json, estimate_fields(forecast))
    if forecast.get("refusal") is not None:
        raise SystemExit(1)


def _follow(api: "Api", job_id: str, as_json: bool) -> None:
    from tunery.cli._watch import follow

    try:
        job = follow(api, job_id, as_json)
    except KeyboardInterrupt:
        click.echo(
            f"The job goes on. `tunery job watch {job_id}` follows it again, "
            f"`tunery job cancel {job_id}` ends it.",
            err=True,
        )
        raise SystemExit(INTERRUPTED) from None
    if job["status"] != "succeeded":
        raise SystemExit(1)


def _recipe(
    *,
    recipe_path: Path | None,
    settings: tuple[str, ...],
    accelerator: str | None,
    spot: bool | None,
    tolerations: tuple[str, ...],
    domain: str | None,
    domain_wait_minutes: int | None,
    prompt: tuple[str, ...],
    prompts: Path | None,
    n_epochs: int | None,
    batch_size: int | None,
    learning_rate_multiplier: float | None,
    method: str | None,
    grader: Path | None,
    beta: float | None,
    template: Path | None,
    eot_tokens: tuple[str, ...],
    mixture: tuple[str, ...],
    **other: Any,
) -> dict[str, Any]:
    """The fields of a job: those of the recipe, and what the options say instead."""
    document = None if recipe_path is None else _recipes.read_recipe(recipe_path)
    recipe: dict[str, Any] = {} if document is None else deepcopy(document.value)
    options = {
        **other,
        "training.n_epochs": n_epochs,
        "training.batch_size": batch_size,
        "training.learning_rate_multiplier": learning_rate_multiplier,
        "training.beta": beta,
        "training.chat_template": None if template is None else _job_files.read_template(template),
        "training.eot_tokens": list(eot_tokens) or None,
        "method.type": method,
        "training.mixture": [_job_files.mixed_file(named) for named in mixture] or None,
        "method.reinforcement.grader": None if grader is None else read_object(grader),
        "placement.accelerator": accelerator,
        "placement.spot": spot,
        "placement.tolerations": list(tolerations) or None,
        "placement.domain": domain,
        "placement.domain_wait_minutes": domain_wait_minutes,
        "eval.prompts": [*prompt, *(() if prompts is None else _job_files.read_prompts(prompts))]
        or None,
    }
    for path, value in options.items():
        if value not in (None, ()):
            _recipes.put(recipe, path, value)
    for setting in settings:
        _recipes.put(recipe, *_parsed(setting))
    dry_run = {name: recipe.pop(name) for name in ("dry_run",) if name in recipe}
    if recipe_path is not None and document is not None:
        _recipes.check_recipe(recipe, recipe_path, document)
    for name, option in (("model", "--model"), ("training_file", "--file")):
        if recipe.get(name) is None:
            raise click.UsageError(f"Missing option '{option}', or a --recipe that says it.")
    recipe.pop("version", None)
    return {**recipe, **dry_run}


def uploaded_files(api: "Api", recipe: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """The body of a submission; files that are not uploaded yet are, where the rest is right."""
    named = {name: recipe[name] for name in _recipes.FILE_FIELDS if recipe.get(name) is not None}
    local = {name for name, file in named.items() if not _api.is_uploaded(str(file))}
    if "training_file" in local:
        known = {name: value for name, value in recipe.items() if name not in local}
        api.estimate(_recipes.without_mixture(known))
    # with a template of its own, a job's rows are not counted under that of the base model
    has_template = bool((recipe.get("training") or {}).get("chat_template"))
    model = None if has_template else recipe["model"]
    body = {
        **recipe,
        **{name: uploaded_file(api, str(file), model, quiet=quiet) for name, file in named.items()},
    }
    return _recipes.with_mixture(
        body, lambda file: uploaded_file(api, file, model, quiet=quiet, option="--mix")
    )


def uploaded_file(
    api: "Api", named: str, model: str | None = None, *, quiet: bool, option: str = "--file"
) -> str:
    """The id of the file `named`; a path is uploaded and checked first, unless it was before.

    model: a base model that it must have been checked for; None: any
    """
    if _api.is_uploaded(named):
        return named
    from tunery.cli.file import await_check, upload_file

    path = Path(named)
    if not path.is_file():
        raise click.BadParameter(
            f"{named} is neither the id or name (faq@2) of an uploaded file nor a local file",
            param_hint=option,
        )
    known = _uploaded_before(api, path, model)
    file = await_check(api, known or upload_file(api, path, quiet=quiet)["id"])
    if file["status"] == "error":
        raise click.ClickException(
            f"{path} was rejected: {file['status_details']}\n"
            f"  fix: `tunery file show {file['id']}` lists every problem"
        )
    return str(file["id"])


def _uploaded_before(api: "Api", path: Path, model: str | None) -> str | None:
    """The id of a file with the same bytes that was checked, for this base model if given."""
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    for file in islice(api.files(), FILES_COMPARED):
        counted = (file["validation"] or {}).get("tokens") or {}
        is_same = file["sha256"] == sha256 and file["status"] == "processed"
        if is_same and (model is None or model in counted):
            return str(file["id"])
    return None


def _parsed(setting: str) -> tuple[str, Any]:
    """The field and the value of `lora.rank=8`; a value that is no JSON is text."""
    field, mark, text = setting.partition("=")
    if not mark or not field:
        raise click.BadParameter(f"{setting!r} is not FIELD=VALUE", param_hint="--set")
    try:
        return field, json.loads(text, parse_constant=_no_number)
    except ValueError:
        return field, text


def _no_number(name: str) -> NoReturn:
    """JSON has neither NaN nor Infinity, although Python reads and writes them."""
    raise ValueError(name)
