"""`tunery import`: moves here from other services."""  # noqa: N999  # the name of the command

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tunery.cli import _api, _options, _recipes
from tunery.cli._import_report import checked_url, folder_of_account, report
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.exit_kit.account import OpenAIAccount
    from tunery.exit_kit.folder import ExportFolder
    from tunery.exit_kit.plan import PlannedJob
    from tunery.exit_kit.reading import Contents
    from tunery.exit_kit.teacher import AnswerPrice

DOLLARS_MAX: Final = 100_000
NO_KEY: Final = "set {}, or send the key: `tunery import … < key.txt`"
EPILOG: Final = """\
\b
Examples:
  tunery import openai --dry-run                 what is there, and what would replace it
  tunery import openai --to acme                 files and jobs, and a recipe for each job
  tunery import openai --to acme --bases bases.toml
  tunery import openai --to acme --teacher-budget 5
                                                 old models answer held-out questions once
  tunery import openai --to acme --go            upload and train all of them
  tunery import azure --base-url https://acme.openai.azure.com --to acme
  tunery import together --to acme
  tunery import report --to acme                 moved models beside the old ones
  tunery import report --to acme --judge gpt-4.1 --judge-pairs labelled.jsonl
  tunery job submit --recipe acme/recipes/ftjob-91….yaml
"""


class _Dollars(click.ParamType[int]):
    """An amount in US dollars, in millionths."""

    name = "USD"

    def convert(self, value: Any, _param: Any, _context: Any) -> int:
        try:
            amount = Decimal(str(value))
            is_amount = 0 <= amount <= DOLLARS_MAX
        except InvalidOperation:
            is_amount = False
        if not is_amount:
            self.fail(f"{value} is no amount from 0 to {DOLLARS_MAX:,} US dollars, such as 2.50")
        return int(amount * 1_000_000)


class _Deployment(click.ParamType[tuple[str, str]]):
    """A tuned model and the name of its deployment."""

    name = "MODEL=NAME"

    def convert(self, value: Any, _param: Any, _context: Any) -> tuple[str, str]:
        model, mark, deployment = str(value).partition("=")
        if not (model and mark and deployment):
            self.fail(f"{value} is no MODEL=NAME, such as gpt-4o-mini-2024-07-18.ft-91=faq")
        return model, deployment


@click.group("import", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Move here from another service."""


command.add_command(report)


def account_command(name: str) -> "Callable[[Callable[..., None]], click.Command]":
    """Make a command that reads an account, with the options that all of them have."""
    file = click.Path(path_type=Path, exists=True, dir_okay=False)
    options: list[Callable[[Any], Any]] = [
        click.option("--dry-run", is_flag=True, help="List what is there; write nothing."),
        folder_of_account(help="The folder for files, jobs and recipes."),
        click.option(
            "--bases",
            type=file,
            metavar="FILE",
            help="A TOML file with which base model replaces which; it comes before the bundled "
            "one.",
        ),
        click.option(
            "--teacher-budget",
            type=_Dollars(),
            metavar="USD",
            help="Ask the old models the held-out questions once, for at most so much in all.",
        ),
        click.option(
            "--prices",
            type=file,
            metavar="FILE",
            help="A TOML file with what old models cost to ask; it comes before the bundled one.",
        ),
        click.option("--go", is_flag=True, help="Upload the rows here, and submit every recipe."),
        click.option("--yes", is_flag=True, help="With --go: do not ask about the price."),
        _options.data_dir,
        _options.as_json,
    ]

    def decorated(function: Callable[..., None]) -> click.Command:
        for option in reversed(options):
            function = option(function)
        return command.command(name)(function)

    return decorated


@account_command("openai")
@click.option("--base-url", metavar="URL", help="Where the account is. [OpenAI's address]")
def from_openai(base_url: str | None, **asked: Any) -> None:
    """Read an OpenAI account into a folder, and plan how to train its models here.

    The key comes from OPENAI_EXPORT_KEY or standard input, and is not kept. Nothing in the account
    is changed. The same command again goes on where it ended; without a key it plans what is in
    the folder, and so does --go where OPENAI_EXPORT_KEY is not set.
    """
    from tunery.exit_kit.account import OFFICIAL, OpenAIAccount

    url = checked_url(base_url or OFFICIAL, "--base-url")
    _move(OpenAIAccount.key_name, lambda key: OpenAIAccount(key, url), **asked)


@account_command("azure")
@click.option("--base-url", metavar="URL", required=True, help="https://NAME.openai.azure.com")
@click.option(
    "--deployment",
    "deployments",
    type=_Deployment(),
    multiple=True,
    metavar="MODEL=NAME",
    help="By which name a tuned model answers, for --teacher-budget; repeatable.",
)
@click.option("--api-version", metavar="DATE", help="Version of Azure's API. [2024-10-21]")
def from_azure(
    base_url: str,
    deployments: Sequence[tuple[str, str]],
    api_version: str | None,
    **asked: Any,
) -> None:
    """Read a resource of Azure OpenAI, as `openai` does with an account.

    The key comes from AZURE_EXPORT_KEY. Written from the reference of version 2024-10-21; it never
    ran against a real resource. Evals and stored completions are not read.
    """
    from tunery.exit_kit.others import AZURE_VERSION, AzureAccount

    url, names = checked_url(base_url, "--base-url"), dict(deployments)
    version = api_version or AZURE_VERSION
    _move(AzureAccount.key_name, lambda key: AzureAccount(key, url, names, version), **asked)


@account_command("together")
@click.option("--base-url", metavar="URL", help="Where the account is. [Together's address]")
def from_together(base_url: str | None, **asked: Any) -> None:
    """Read an account of Together AI, as `openai` does.

    The key comes from TOGETHER_EXPORT_KEY. Written from the public reference; it never ran against
    a real account. Its open base models are taken here under their own names.
    """
    from tunery.exit_kit.others import TOGETHER, TogetherAccount

    url = checked_url(base_url or TOGETHER, "--base-url")
    _move(TogetherAccount.key_name, lambda key: TogetherAccount(key, url), **asked)


def _move(
    key_name: str,
    account_of: "Callable[[str], OpenAIAccount]",
    *,
    dry_run: bool,
    root: Path,
    bases: Path | None,
    teacher_budget: int | None,
    prices: Path | None,
    go: bool,
    yes: bool,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Read an account, plan, ask old models and submit, as the options say."""
    from tunery.exit_kit.folder import ExportFolder
    from tunery.exit_kit.kept import kept_rows
    from tunery.exit_kit.plan import keep_plan, plan_account, replacements
    from tunery.exit_kit.reading import list_account, read_account
    from tunery.exit_kit.teacher import Teacher, asked_jobs
    from tunery.exit_kit.teacher import prices as price_table

    if dry_run and go:
        raise click.UsageError("--dry-run submits nothing: leave out --go.")
    if go and as_json and not yes:
        raise click.UsageError("--json cannot ask: add --yes.")
    table, folder, costs = replacements(bases), ExportFolder(root), price_table(prices)
    asks, known = teacher_budget is not None, folder.has_manifest()
    key = _key(key_name, needed=dry_run or asks or not known, typed=asks or not (go and known))
    here = _bases_here(folders, needed=go)
    if dry_run:
        with account_of(key or "") as account:
            contents = list_account(account, _say)
        jobs = _priced(contents, table, costs, here, folders)
        _show_contents(contents, jobs, as_json)
        return
    try:
        with folder.locked():
            if key is not None:
                with account_of(key) as account:
                    read_account(account, folder, _say)
            kept = kept_rows(folder)
            planned = plan_account(folder, kept, table, here)
            keep_plan(folder, planned)
            written = _write_recipes(folder, planned)
            result = {
                **json.loads((folder.root / "manifest.json").read_text(encoding="utf-8")),
                "kept": builtins(kept),
                "plan": [{**job, **written[job["job_id"]]} for job in builtins(planned)],
            }
            if not go:  # which says the prices of the rows themselves
                _add_estimates(result["plan"], folder, folders)
            teacher = Teacher(folder, asked_jobs(planned), costs)
            if teacher_budget is not None:
                with account_of(key or "") as account:
                    teacher.ask(account, teacher_budget, _say)
            result["teacher"] = builtins(teacher.outcome())
            if go:
                result["submitted"] = _submit(folder, planned, written, folders, as_json, yes)
    except OSError as error:
        what = f"{error.filename or root} cannot be used: {error.strerror}"
        fix = "free its disk, or mend its rights; the same command goes on where this one ended"
        raise LocalError(what, fix) from None
    if as_json:
        click.echo(json.dumps(result))
    else:
        _show(result)
    if go and any(job.get("error") for job in result["submitted"]):
        raise SystemExit(1)


def _say(text: str) -> None:
    click.echo(text, err=True)


def builtins(values: Sequence[msgspec.Struct]) -> list[dict[str, Any]]:
    """Return structs as JSON has them."""
    objects: list[dict[str, Any]] = msgspec.to_builtins(values, enc_hook=str)
    return objects


def _key(name: str, *, needed: bool, typed: bool) -> str | None:
    """The key of the account; None: none was given. Raises LocalError where one is needed.

    name: of the variable that it is in
    typed: it may come from standard input
    """
    key = os.environ.get(name, "").strip()
    if not key and typed and not sys.stdin.isatty():
        key = sys.stdin.readline().strip()
    if not key and needed and sys.stdin.isatty():
        key = click.prompt("key of the account", hide_input=True, err=True).strip()
    if not key and needed:
        raise LocalError("there is no key of the account", NO_KEY.format(name))
    return key or None


def _bases_here(folders: DataDir, *, needed: bool) -> dict[str, str]:
    """Names of the stack's base models, and their aliases, to their ids; none without a stack."""
    try:
        with _api.connect(folders) as api:
            known = api.bases()
    except (LocalError, click.ClickException):
        if needed:
            raise
        return {}
    return {name: base["id"] for base in known for name in (*base["aliases"], base["id"])}


def _priced(
    contents: "Contents",
    table: Sequence[Any],
    costs: "Sequence[AnswerPrice]",
    here: Mapping[str, str],
    folders: DataDir,
) -> list[dict[str, Any]]:
    """Return each job with what it costs to ask its model there, and to train its successor here.

    `estimate`: that of the service for a job with the same settings and as many tokens, or an
        `error` that says why there is none
    """
    from tunery.exit_kit.plan import (
        base_for,
        base_of_tuned,
        recipe_without_rows,
        tokens_of_epoch,
    )
    from tunery.exit_kit.teacher import most_of_file_micro, price_of

    jobs: list[dict[str, Any]] = []
    bodies: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for job in contents.jobs:
        old, _ = base_of_tuned(job["model"])
        base = base_for(old, table, here)
        price = price_of(job.get("fine_tuned_model") or "", costs)
        asked = contents.files.get(job.get("validation_file") or job["training_file"])
        most = None
        if price is not None and asked is not None:
            most = most_of_file_micro(asked.get("bytes") or 0, price)
        size = (contents.files.get(job["training_file"]) or {}).get("bytes")
        tokens = tokens_of_epoch(job, size)
        forecast, body = dict[str, Any](), dict[str, Any]()
        if job["status"] != "succeeded":
            forecast = {"error": f"it is {job['status']} there, and has no model to replace"}
        elif base is None:
            forecast = {"error": f"no base is named for {old}: add it to a file for --bases"}
        elif not base.is_here:
            forecast = {"error": f"{base.id} is not here yet"}
        elif tokens is None:
            forecast = {"error": f"{job['training_file']} could not be had"}
        else:
            recipe = recipe_without_rows(job, base, [])
            settings = {name: value for name, value in recipe.items() if name != "version"}
            body = {**settings, "training_tokens": tokens}
        jobs.append(
            {
                **{name: job[name] for name in ("id", "status", "model", "training_file")},
                "base": None if base is None else base.id,
                "base_source": None if base is None or base.is_here else base.source,
                "trained_tokens": job.get("trained_tokens"),
                "teacher_micro_max": most,
                "estimate": forecast,
            }
        )
        if body:
            bodies.append((jobs[-1], body))
    _estimate(folders, bodies)
    return jobs


def _add_estimates(
    plan: Sequence[dict[str, Any]], folder: "ExportFolder", folders: DataDir
) -> None:
    """Add time and price here to each planned job whose base is here: the `estimate`."""
    from tunery.exit_kit.plan import tokens_of_epoch

    jobs = {job["id"]: job for job in folder.all_jobs()}
    bodies: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for planned in plan:
        planned["estimate"] = None
        if planned["recipe"] is None or planned["problems"] or not planned["base"]["is_here"]:
            continue
        of_files = ("version", "training_file", "validation_file")
        rows = folder.root / planned["recipe"]["training_file"].removeprefix("../")
        tokens = tokens_of_epoch(jobs[planned["job_id"]], rows.stat().st_size)
        body = {name: value for name, value in planned["recipe"].items() if name not in of_files}
        bodies.append((planned, {**body, "training_tokens": tokens}))
    _estimate(folders, bodies)


def _estimate(folders: DataDir, bodies: Sequence[tuple[dict[str, Any], Mapping[str, Any]]]) -> None:
    """Add its `estimate` to each job, or the `error` that its submission would have.

    bodies: jobs with what is asked of them, over one connection
    """
    from tunery.client import ApiRefusal

    if not bodies:  # which also need no stack
        return
    with _api.connect(folders) as api:
        for job, body in bodies:
            try:
                job["estimate"] = dict(api.estimate(body))
            except ApiRefusal as error:
                job["estimate"] = {"error": _text(error)}


def _show_contents(contents: "Contents", jobs: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    from tunery.comparison.page import dollars

    if as_json:
        files = [*contents.files.values()]
        result = {"files": files, "jobs": jobs, "missing": contents.missing}
        click.echo(json.dumps({**result, "bytes": contents.bytes}))
        return
    columns: dict[str, Any] = {
        "job": "id",
        "status": "status",
        "there": "model",
        "here": "base",
        "file": "training_file",
        "training here": _training_here,
    }
    _api.show(jobs, False, columns)
    total = sum(job["teacher_micro_max"] or 0 for job in jobs)
    unpriced = sum(job["teacher_micro_max"] is None for job in jobs)
    text = f"Asking the old models costs at most {dollars(total)} there (--teacher-budget)"
    click.echo(text + (f", without {unpriced:,} that have no price or no file" * (unpriced > 0)))
    known = [job["estimate"] for job in jobs if "amount_micro" in job["estimate"]]
    if known:
        currency = known[0]["currency"]
        expected = _api.money(sum(each["amount_micro"] for each in known), currency)
        most = _api.money(sum(each["amount_max_micro"] for each in known), currency)
        click.echo(f"Training {len(known):,} models here costs about {expected}, at most {most}.")
    for source in dict.fromkeys(job["base_source"] for job in jobs if job["base_source"]):
        click.echo(f"For a price here, `tunery up` and `tunery base add {source}`; then again.")
    size = _api.size(contents.bytes)
    click.echo(f"{len(contents.files):,} files, {size}; {len(jobs):,} jobs. Nothing was written.")
    _show_missing(contents.missing)


def _training_here(job: Mapping[str, Any]) -> str:
    forecast = job.get("estimate") or {"error": ""}
    return str(forecast["error"] if "error" in forecast else _price(forecast))


def _write_recipes(
    folder: "ExportFolder", planned: Sequence["PlannedJob"]
) -> dict[str, dict[str, Any]]:
    """Write a recipe for each job that is trained again; one that is there already is kept.

    Returns, by job, the path of its recipe and the problems that keep it from being submitted.
    """
    from services.gateway.jobs.recipes import recipe_problems
    from tunery.data.tokens.chunks import write_atomically

    written: dict[str, dict[str, Any]] = {}
    for job in planned:
        written[job.job_id] = {"recipe_path": None, "problems": []}
        if job.recipe is None:
            continue
        problems = [f"{at.param}: {at.message}" for at in recipe_problems(job.recipe)]
        path = folder.recipes / f"{job.job_id}.yaml"
        if not path.exists():
            notes = [f"{job.job_id}: {job.old_model} there", *job.reasons, *problems]
            comments = "".join(f"# {' '.join(note.split())}\n" for note in notes)
            write_atomically(path, (comments + _recipes.as_text(job.recipe)).encode())
        written[job.job_id] = {"recipe_path": str(path), "problems": problems}
    return written


def _submit(
    folder: "ExportFolder",
    planned: Sequence["PlannedJob"],
    written: Mapping[str, Mapping[str, Any]],
    folders: DataDir,
    as_json: bool,
    yes: bool,
) -> list[dict[str, Any]]:
    """Upload and submit the recipes that were not submitted yet, oldest job first.

    What cannot be submitted has an `error`; the others go on.
    """
    from tunery.cli.job import uploaded_files
    from tunery.client import ApiRefusal
    from tunery.exit_kit.folder import write

    path = folder.root / "submitted.json"
    done = folder.submitted()
    jobs = [job.job_id for job in reversed(planned) if job.recipe is not None]
    results: list[dict[str, Any]] = []
    with _api.connect(folders) as api:
        bodies: dict[str, dict[str, Any]] = {}
        for job_id in jobs:
            if job_id in done:
                results.append({"job_id": job_id, "id": done[job_id], "new": False})
                continue
            try:
                recipe_path = Path(written[job_id]["recipe_path"])
                document = _recipes.read_recipe(recipe_path)
                _recipes.check_recipe(document.value, recipe_path, document)
                recipe = {n: v for n, v in document.value.items() if n != "version"}
                bodies[job_id] = uploaded_files(api, recipe, quiet=as_json)
                forecast = api.estimate(bodies[job_id])
            except (ApiRefusal, click.ClickException) as error:
                bodies.pop(job_id, None)
                results.append({"job_id": job_id, "error": _text(error)})
                continue
            if not as_json:
                click.echo(f"{job_id}: {_price(forecast)}")
        if bodies and not yes:
            click.confirm(f"Train {len(bodies):,} models?", abort=True)
        for job_id, body in bodies.items():
            try:
                # the key makes it one job, also where this process is killed before the next line
                new = api.submit(body, folder.idempotency_key(job_id))
            except ApiRefusal as error:
                results.append({"job_id": job_id, "error": _text(error)})
                continue
            done[job_id] = new["id"]
            write(path, done)
            results.append({"job_id": job_id, "id": new["id"], "new": True})
    return results


def _text(error: Exception) -> str:
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def _price(forecast: Any) -> str:
    if not forecast["estimation_available"]:
        return str(forecast["unavailable_reason"])
    from tunery.cli._job_view import duration

    currency = forecast["currency"]
    took = duration(forecast["expected_duration_seconds"])
    longest = duration(forecast["max_duration_seconds"])
    amount = _api.money(forecast["amount_micro"], currency)
    most = _api.money(forecast["amount_max_micro"], currency)
    refused = f"; refused: {forecast['refusal']}" if forecast["refusal"] else ""
    return f"about {took}, at most {longest}; {amount}, at most {most}{refused}"


def _show(result: Mapping[str, Any]) -> None:
    columns: dict[str, Any] = {
        "job": "job_id",
        "there": "old_model",
        "here": lambda job: job["base"] and job["base"]["id"],
        "rows": "rows",
        "training here": _training_here,
        "recipe": "recipe_path",
        "reasons": lambda job: "; ".join([*job["problems"], *job["reasons"]]),
    }
    _api.show(result["plan"], False, columns)
    total = sum(file["bytes"] for file in result["files"])
    click.echo(
        f"{len(result['files']):,} files, {_api.size(total)}; {len(result['jobs']):,} jobs; "
        f"{len(result['evals']):,} evals; {result['completions']:,} stored completions"
    )
    for kept in result["kept"]:
        rows = f"{kept['rows']:,} rows in {kept['path']}" if kept["path"] else "no rows"
        click.echo(f"{kept['kind']} {kept['id']}: {rows}")
        for reason, count in kept["left_out"].items():
            click.echo(f"  left out × {count:,}: {reason}")
    _show_missing(result["missing"])
    for asked in result["teacher"]:
        _show_teacher(asked)
    for job in result.get("submitted", ()):
        click.echo(f"{job['job_id']} → {job.get('id') or job['error']}")


def _show_teacher(asked: Mapping[str, Any]) -> None:
    from tunery.comparison.page import dollars

    text = f"{asked['model']}: {asked['answered']:,} of {asked['questions']:,} questions answered"
    if asked["spent_micro"]:
        text += f", {dollars(asked['spent_micro'])} spent"
    if asked["most_micro"]:
        text += f"; the others cost at most {dollars(asked['most_micro'])}: --teacher-budget"
    click.echo(text + (f" ({asked['reason']})" if asked["reason"] else ""))


def _show_missing(missing: Sequence[Mapping[str, str]]) -> None:
    for item in missing:
        click.echo(f"could not be had: {item['kind']} {item['id']}: {item['reason']}")
