"""Follows one job: its messages as lines, and below them its step and a curve of its loss."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _api
from tunery.cli._job_view import duration, job_fields, percent
from tunery.cli._queue_view import interval

if TYPE_CHECKING:
    from rich.text import Text

    from tunery.client import Api

REFRESH_S: Final = 1.0  # between two requests for the job
PHASES: Final = {
    "provisioning": "a node prepares the job",
    "running": "the training starts",
    "checkpointing": "the last checkpoint is written",
    "evaluating": "the adapter is compared with its base model",
    "registering": "the adapter is published",
}
BARS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 40


def follow(api: "Api", job_id: str, as_json: bool) -> Any:
    """Print the events of a job until it has ended, and return it.

    as_json: one event per line, and the job last; otherwise lines for people
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=as_json)
    losses: list[float] = []
    with (
        console.status(escape(_status(api.job(job_id), losses))) as status,
        _refreshed(lambda: status.update(escape(_status(api.job(job_id), losses)))),
    ):
        for event in api.follow(job_id):
            if event["type"] == "metrics":
                loss = event["data"]["train_loss"]
                losses += [loss] if loss is not None else []
            if as_json:
                click.echo(json.dumps(event))
            elif event["type"] != "metrics":
                console.print(_line(event), highlight=False)
    job = api.job(job_id)
    if as_json:
        click.echo(json.dumps(job))
    else:
        if losses:
            console.print(f"loss {sparkline(losses)} {losses[0]:.2f} → {losses[-1]:.2f}")
        _api.show_one(job, False, job_fields(job))
    return job


@contextmanager
def _refreshed(refresh: Callable[[], None]) -> Iterator[None]:
    """Call `refresh` each REFRESH_S, whether events arrive or not: a job changes without them."""
    from tunery.client import ApiRefusal, Unreachable

    ended = Event()

    def run() -> None:
        while not ended.wait(REFRESH_S):
            try:
                refresh()
            except (ApiRefusal, Unreachable):
                continue  # the follower of the events reports it

    thread = Thread(target=run, name="refresh job", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(REFRESH_S)


def _line(event: Any) -> "Text":
    from rich.text import Text

    colour = {"warn": "yellow", "error": "red"}.get(event["level"], "default")
    when = _api.moment(event["created_at"])
    return Text.assemble((when, "dim"), "  ", (event["message"], colour))


def _status(job: Any, losses: Sequence[float]) -> str:
    progress, queue = job["progress"], job["queue"] or {}
    if queue.get("reason"):
        starts = interval(queue.get("eta"), queue.get("eta_latest"), time.time())
        expected = f" Starts {starts}." if starts else ""
        return f"{job['status']}: {queue['reason']}{expected}"
    doing = f"{job['status']}: {PHASES.get(job['phase'], job['phase'])}"
    if not progress:
        return doing
    if job["phase"] == "running":
        doing = f"step {progress['step']} of {progress['total_steps']}"
    left = progress["seconds_remaining"]
    rest = f", {percent(progress)}"
    rest += f", about {duration(left)} left" if left else ""
    return doing + rest + (f" loss {losses[-1]:.3f} {sparkline(losses)}" if losses else "")


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """The values as a line of at most `width` bars, each the mean of its part of the values."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges) if b > a]
    low, high = min(means), max(means)
    span = high - low or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in means)
