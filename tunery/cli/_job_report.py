"""`tunery job report`: a job as one HTML file that needs nothing else, to be sent around."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _api
from tunery.cli._job_view import duration, gate_lines

if TYPE_CHECKING:
    from tunery.client import Api

FOLDER: Final = Path(__file__).parent
TEMPLATE: Final = "_job_report.html.jinja"
STEPS_MAX: Final = 1_000_000
EVENTS_MAX: Final = 10_000
CURVES: Final = {"training loss": "train_loss", "validation loss": "valid_loss"}


@click.command("report")
@click.argument("job_id")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="The file to write. [JOB_ID.html]",
)
@_api.asking
def report(api: "Api", job_id: str, output: Path | None, as_json: bool) -> None:
    """Write a job as one HTML file: curve, attempts, gate, answers, bill, events.

    It loads nothing from anywhere. Prompts and answers are in it: send it to whom they may reach.
    """
    from tunery.client import ApiRefusal

    job: Any = api.job(job_id)
    steps = list(islice(api.metrics(job_id), STEPS_MAX))[::-1]
    events = list(islice(api.events(job_id), EVENTS_MAX))[::-1]
    cost = api.cost(job_id)
    try:
        answers = api.answers(job_id)["data"]
    except ApiRefusal:  # it was not evaluated, or not yet
        answers = []
    path = output or Path(f"{job['id']}.html")
    try:
        path.write_text(job_page(job, steps, events, answers, cost), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--output {path}: {error.strerror}") from error
    written = {"id": job["id"], "path": str(path), "bytes": path.stat().st_size}
    _api.show_one(written, as_json, [("report", str(path)), ("size", _api.size(written["bytes"]))])


def job_page(
    job: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    answers: Sequence[Mapping[str, str]],
    cost: Mapping[str, Any],
) -> str:
    """Render a job as HTML; all texts of tenants and models are escaped.

    steps, events: oldest first, as the API has them; answers: `prompt`, `base`, `adapter`
    """
    from services.gateway.console.job.timeline import timeline
    from tunery.comparison.page import rendered

    messages = [event for event in events if event["type"] == "message"]
    now = max((event["created_at"] for event in events), default=job["created_at"])
    filters: dict[str, Any] = {
        "moment": _api.moment,
        "duration": duration,
        "gpu_time": _api.gpu_time,
        "money": _api.money,
    }
    return rendered(
        TEMPLATE,
        FOLDER,
        filters,
        job=job,
        facts=_facts(job, cost),
        curve=_curve(steps),
        timeline=timeline(messages, now),
        gate=_written(gate_lines(job["gate"] or {})),
        answers=answers,
        cost=cost,
        messages=messages,
    )


def _facts(job: Mapping[str, Any], cost: Mapping[str, Any]) -> list[tuple[str, Any]]:
    settings = ", ".join(f"{name} {value}" for name, value in job["hyperparameters"].items())
    error = job["error"] and f"{job['error']['code']}: {job['error']['message']}"
    return _written(
        [
            ("job", job["id"]),
            ("base", job["model"]),
            ("model", job["fine_tuned_model"]),
            ("submitted", _api.moment(job["created_at"])),
            ("ended", _api.moment(job["finished_at"])),
            ("training file", job["training_file"]),
            ("trained tokens", job.get("trained_tokens")),
            ("cost", _api.money(cost["amount_micro"], cost["currency"])),
            ("settings", settings),
            ("error", error),
        ]
    )


def _written(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in pairs if value not in (None, "", [], {})]


def _curve(steps: Sequence[Mapping[str, Any]]) -> Any:
    """The losses as SVG, None without any; a step that was computed twice is there once."""
    from markupsafe import Markup

    from tunery.cli.simulate.plots import line_chart

    figures = {int(step["step"]): step for step in steps}
    lines = {
        name: [
            (float(number), float(figures[number][field]))
            for number in sorted(figures)
            if figures[number].get(field) is not None
        ]
        for name, field in CURVES.items()
    }
    if not any(lines.values()):
        return None
    # made of numbers and of the names above alone
    return Markup(line_chart(lines, "step", "loss"))  # noqa: S704  # no text of a tenant
