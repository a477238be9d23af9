"""`tunery mcp`: the API as tools of an assistant that speaks the Model Context Protocol."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

import click
import msgspec

from schemas.units import MICRO
from tunery.cli import _api, _options
from tunery.cli.env import exported
from tunery.cli.file import await_check
from tunery.cli.suggest import suggest
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from tunery.client import Api

ITEMS_MAX: Final = 50  # of a list; an assistant pays for each word it reads
ANSWER_TOKENS_MAX: Final = 1_024
SESSION: Final = uuid4().hex  # the same job may be wanted again in another conversation
MISSING: Final = (
    "the package mcp is not installed",
    "install Tunery with its extra: pip install 'tunery[mcp]'",
)
INSTRUCTIONS: Final = """\
Tunery fine-tunes language models on this organisation's machines, and bills them. Usual order:
upload_file, suggest_training, estimate_job, then submit_job with the amount that the person you
work for has agreed to. Amounts are in the currency of the tenant. A job that waits says why
(explain_job). Promoting a model to production is left to people.
"""
EPILOG = """\
\b
Examples:
  tunery mcp                          reads and changes; files of this folder only
  tunery mcp --read-only              nothing that changes or costs anything
  tunery mcp --folder ~/training-data
\b
An assistant starts it, for example by this entry of its configuration:
  {"mcpServers": {"tunery": {"command": "tunery", "args": ["mcp", "--read-only"]}}}
"""


@click.command("mcp", epilog=EPILOG)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="The folder whose files may be uploaded. [the current one]",
)
@click.option("--read-only", is_flag=True, help="Offer no tool that changes or costs anything.")
@_options.data_dir
def command(folder: Path, read_only: bool, folders: DataDir) -> None:
    """Serve the API to an assistant over standard input and output.

    The key is that of `tunery env`, with its scopes, limits and budgets. Give an
    assistant a key of its own: `tunery key create TENANT --name assistant --spend-cap 20`.
    """
    try:
        import mcp  # noqa: F401  # named before anything else is done
    except ModuleNotFoundError:
        raise LocalError(*MISSING) from None
    url, key = exported(folders)
    server(url, key, folder.resolve(), read_only=read_only).run("stdio")


def server(url: str, key: str, folder: Path, *, read_only: bool) -> "MCPServer":
    """Return a server whose tools call the API at `url` with this key.

    folder: whose files may be uploaded
    """
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    from tunery.client import Api, ApiRefusal, Unreachable

    served = MCPServer("tunery", instructions=INSTRUCTIONS, log_level="WARNING")

    @contextmanager
    def connected() -> Iterator[Api]:
        try:
            with Api(url, key) as api:
                yield api
        except (ApiRefusal, Unreachable, OSError) as error:
            raise ToolError(str(error)) from None
        except click.ClickException as error:
            raise ToolError(error.message) from None

    for tool in (*READING, *(() if read_only else CHANGING)):
        annotations = ToolAnnotations(read_only_hint=tool in READING)
        served.add_tool(_bound(tool, connected, folder), annotations=annotations)
    return served


def _bound(tool: Callable[..., Any], connected: Callable[[], Any], folder: Path) -> Any:
    """Return a tool without its parameters `api` and `folder`, which an assistant does not give."""

    @functools.wraps(tool)
    def call(**arguments: Any) -> Any:
        with connected() as api:
            root = {"folder": folder} if "folder" in tool.__annotations__ else {}
            return tool(api, **root, **arguments)

    signature = inspect.signature(tool)
    kept = [each for name, each in signature.parameters.items() if name not in ("api", "folder")]
    call.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # inspect reads it
    call.__annotations__ = {each.name: each.annotation for each in kept}
    return call


def list_models(api: "Api") -> dict[str, Any]:
    """List base models that can be trained, and the tenant's own models."""
    bases = [
        {name: base[name] for name in ("id", "parameters", "context_length", "licence")}
        for base in api.bases()
    ]
    return {
        "bases": bases,
        "models": [model["id"] for model in api.models("fine-tuned")][:ITEMS_MAX],
    }


def list_files(api: "Api") -> dict[str, Any]:
    """List the newest uploaded files with their status and rows."""
    return {"files": list(islice(api.files(), ITEMS_MAX))}


def check_file(api: "Api", file_id: str) -> dict[str, Any]:
    """Return the report of an uploaded file: each problem with its row and the fix."""
    return api.validation(file_id)


def suggest_training(api: "Api", file_id: str, budget: float | None = None) -> dict[str, Any]:
    """Suggest method, base model and settings for an uploaded file, with price, risks and reasons.

    budget: what the job may be expected to cost. `request` of the answer fits submit_job.
    """
    return suggest(api, file_id, None if budget is None else round(budget * MICRO))


def estimate_job(api: "Api", request: dict[str, Any]) -> dict[str, Any]:
    """Estimate tokens, memory, time and price of a job, and say why it would be refused.

    request: the body of OpenAI's `POST /fine_tuning/jobs`, such as {"model": …, "training_file": …}
    """
    return api.estimate(request)


def list_jobs(api: "Api", status: str | None = None) -> dict[str, Any]:
    """List the newest jobs, all or with one status, such as running or succeeded."""
    names = ("id", "status", "model", "fine_tuned_model", "created_at", "finished_at")
    jobs = islice(api.jobs(query={} if status is None else {"status": status}), ITEMS_MAX)
    return {"jobs": [{name: job.get(name) for name in names} for job in jobs]}


def show_job(api: "Api", job_id: str) -> dict[str, Any]:
    """Return a job: status, progress, cost so far, verdict of the gate."""
    return dict(api.job(job_id))


def explain_job(api: "Api", job_id: str) -> dict[str, Any]:
    """Say why a job waits, until when, and what would start it sooner."""
    explained = dict(api.explain(job_id))
    if explained.get("queue"):
        explained["starts"] = api.get("fine_tuning", "jobs", job_id, "starts")["data"]
    return explained


def follow_job(api: "Api", job_id: str) -> dict[str, Any]:
    """Return the newest events of a job, and the figures of its newest steps."""
    events = [event["message"] for event in islice(api.events(job_id), ITEMS_MAX)]
    return {"events": events, "steps": list(islice(api.metrics(job_id), ITEMS_MAX))}


def show_answers(api: "Api", job_id: str) -> dict[str, Any]:
    """Return what base model and tuned model answered to the same prompts, before and after."""
    return api.answers(job_id)


def show_spending(api: "Api") -> dict[str, Any]:
    """Return this month's use and the budgets of the tenant."""
    used = [bucket for bucket in api.get("usage")["data"] if bucket["results"]]
    return {"usage": used, "budgets": list(api.budgets())}


def upload_file(api: "Api", folder: Path, path: str) -> dict[str, Any]:
    """Upload a file of training rows from the folder of this server, and check every row."""
    file = (folder / path).resolve()
    if not file.is_relative_to(folder):
        raise click.ClickException(f"{path} is outside {folder}, the folder of this server")
    if not file.is_file():
        raise click.ClickException(f"there is no file {path} in {folder}")
    return dict(await_check(api, api.upload(file)["id"]))


def submit_job(api: "Api", request: dict[str, Any], agreed_amount: float) -> dict[str, Any]:
    """Submit a job, at a price that a person has agreed to. It costs money.

    request: as of estimate_job
    agreed_amount: the most that the job may cost, in the currency of the estimate
    """
    estimate = api.estimate(request)
    if not estimate["estimation_available"]:
        raise click.ClickException(f"no price yet: {estimate['unavailable_reason']}")
    most = estimate["amount_max_micro"] / MICRO
    if most > agreed_amount:
        raise click.ClickException(
            f"the job may cost up to {most:.2f} {estimate['currency']} (expected: "
            f"{estimate['amount_micro'] / MICRO:.2f}), and {agreed_amount:.2f} are agreed: ask the "
            "person for this amount, then call again"
        )
    # A call that an assistant repeats is one job; another agreed amount is another decision.
    asked = msgspec.json.encode([SESSION, request, agreed_amount], order="deterministic")
    return dict(api.submit(request, f"mcp-{sha256(asked).hexdigest()}"))


def change_job(
    api: "Api", job_id: str, change: Literal["cancel", "pause", "resume"]
) -> dict[str, Any]:
    """Cancel, pause or resume a job. What a cancelled job has used is billed."""
    return dict(api.change(job_id, change))


def ask_model(api: "Api", model: str, question: str, max_tokens: int = 256) -> dict[str, Any]:
    """Ask a base model or a tuned model a question, at temperature 0. Answers cost money."""
    options = {"max_completion_tokens": min(max_tokens, ANSWER_TOKENS_MAX), "temperature": 0}
    message = {"role": "user", "content": question}
    completion = _api.complete(api, model, [message], options)
    return {"answer": completion["choices"][0]["message"]["content"], "usage": completion["usage"]}


READING: Final = (
    list_models,
    list_files,
    check_file,
    suggest_training,
    estimate_job,
    list_jobs,
    show_job,
    explain_job,
    follow_job,
    show_answers,
    show_spending,
)
CHANGING: Final = (upload_file, submit_job, change_job, ask_model)
