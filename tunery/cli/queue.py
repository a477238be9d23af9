"""`tunery queue`: what runs, what waits and why, and what is decided next."""

import json
import time
from typing import Any

import click

from tunery.cli import _api, _options
from tunery.cli._queue_view import decisions, interval
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  tunery queue
  tunery queue --json
"""


@click.command("queue", epilog=EPILOG)
@click.option("--pool", default="default", show_default=True, help="The pool of nodes.")
@_options.data_dir
@_options.as_json
def command(pool: str, folders: DataDir, as_json: bool) -> None:
    """Show slots, nodes, leases, waiting jobs in order of service, next decisions (admin key).

    `tunery job why` says the same of one job, in sentences.
    """
    with _api.connect(folders) as api:
        queue = api.queue(pool)
    if as_json:
        click.echo(json.dumps(queue))
        return
    now = time.time()
    click.echo("Slots")
    _show_kinds(queue)
    click.echo("\nNodes")
    _show_nodes(queue)
    click.echo("\nRunning")
    _show_leases(queue, now)
    click.echo("\nWaiting, in order of service")
    _show_waiting(queue, now)
    click.echo("\nNext decisions")
    for line in decisions(queue, now) if any(queue["next"].values()) else ("None.",):
        click.echo(f"  {line}")
    if queue.get("calibration"):
        click.echo("\nExpected times, by what has ended")
        _show_calibration(queue)


def _show_kinds(queue: Any) -> None:
    _api.show(
        queue["kinds"],
        False,
        {
            "device": lambda kind: kind["accelerator"] or kind["device"],
            "price": lambda kind: kind["price_class"].replace("_", "-"),
            "nodes": "nodes",
            "slots": "slots",
            "free": "free",
            "held": "held",
            "asked": "asked",
            "interrupted (24 h)": "interrupted",
        },
    )


def _show_calibration(queue: Any) -> None:
    _api.show(
        queue["calibration"],
        False,
        {
            "work": lambda each: {"train": "training", "eval": "evaluation", "serve": "serving"}[
                each["role"]
            ],
            "ended": "attempts",
            "within p50": lambda each: f"{each['within_p50_pct']:g} %",
            "within p90": lambda each: f"{each['within_p90_pct']:g} %",
        },
    )


def _show_nodes(queue: Any) -> None:
    _api.show(
        queue["nodes"],
        False,
        {
            "node": "id",
            "status": "status",
            "device": lambda node: node["accelerator"] or node["device"],
            "free": "free",
            "slots": "slots",
        },
    )


def _show_leases(queue: Any, now: float) -> None:
    _api.show(
        queue["leases"],
        False,
        {
            "job": "job_id",
            "tenant": "tenant",
            "lane": "lane",
            "nodes": lambda lease: ", ".join(lease["nodes"]),
            "slots": "slots",
            "ends": lambda lease: (
                interval(lease["ends"], lease["ends"], now) if lease["ends"] else "ended"
            ),
        },
    )


def _show_waiting(queue: Any, now: float) -> None:
    _api.show(
        queue["waiting"],
        False,
        {
            "job": "job_id",
            "tenant": "tenant",
            "position": lambda job: f"{job['lane']} {job['position']}",
            "slots": "slots",
            "why": "code",
            "starts": lambda job: interval(job["eta"], job["eta_latest"], now),
        },
    )
