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
        ("device", "price", "nodes", "slots", "free", "held", "asked", "interrupted (24 h)"),
        lambda kind: (
            kind["accelerator"] or kind["device"],
            kind["price_class"].replace("_", "-"),
            kind["nodes"],
            kind["slots"],
            kind["free"],
            kind["held"],
            kind["asked"],
            kind["interrupted"],
        ),
    )


def _show_calibration(queue: Any) -> None:
    _api.show(
        queue["calibration"],
        False,
        ("work", "ended", "within p50", "within p90"),
        lambda each: (
            {"train": "training", "eval": "evaluation", "serve": "serving"}[each["role"]],
            each["attempts"],
            f"{each['within_p50_pct']:g} %",
            f"{each['within_p90_pct']:g} %",
        ),
    )


def _show_nodes(queue: Any) -> None:
    _api.show(
        queue["nodes"],
        False,
        ("node", "status", "device", "free", "slots"),
        lambda node: (
            node["id"],
            node["status"],
            node["accelerator"] or node["device"],
            node["free"],
            node["slots"],
        ),
    )


def _show_leases(queue: Any, now: float) -> None:
    _api.show(
        queue["leases"],
        False,
        ("job", "tenant", "lane", "nodes", "slots", "ends"),
        lambda lease: (
            lease["job_id"],
            lease["tenant"],
            lease["lane"],
            ", ".join(lease["nodes"]),
            lease["slots"],
            interval(lease["ends"], lease["ends"], now) if lease["ends"] else "ended",
        ),
    )


def _show_waiting(queue: Any, now: float) -> None:
    _api.show(
        queue["waiting"],
        False,
        ("job", "tenant", "position", "slots", "why", "starts"),
        lambda job: (
            job["job_id"],
            job["tenant"],
            f"{job['lane']} {job['position']}",
            job["slots"],
            job["code"],
            interval(job["eta"], job["eta_latest"], now),
        ),
    )
