"""`tunery queue`: what runs, what waits and why, and what is decided next."""

import json
import time
from typing import TYPE_CHECKING, Any

import click

from tunery.cli import _api
from tunery.cli._queue_view import decisions, interval

if TYPE_CHECKING:
    from tunery.client import Api

EPILOG = """\
\b
Examples:
  tunery queue
  tunery queue --json
  tunery queue --add gpu-07=2          what if there were two more like it
  tunery queue --remove gpu-07 --without ftjob-91…
"""


@click.command("queue", epilog=EPILOG)
@click.option("--pool", default="default", show_default=True, help="The pool of nodes.")
@click.option(
    "--add", multiple=True, metavar="NODE[=COUNT]", help="What if: more nodes like this one."
)
@click.option("--remove", multiple=True, metavar="NODE", help="What if: without this node.")
@click.option("--without", multiple=True, metavar="JOB", help="What if: without this job.")
@_api.asking
def command(
    api: "Api",
    pool: str,
    add: tuple[str, ...],
    remove: tuple[str, ...],
    without: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show slots, nodes, leases, waiting jobs in order of service, next decisions (admin key).

    `tunery job why` says the same of one job, in sentences. With --add, --remove or --without it is
    the queue as the planner would see it then; nothing is recorded.
    """
    changes = {
        "add": [_more_nodes(each) for each in add],
        "remove": remove,
        "jobs": [{"job_id": job_id, "left_out": True} for job_id in without],
    }
    if any(changes.values()):
        queue = api.post("queue", "plan", pool=pool, **changes)
    else:
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


def _more_nodes(text: str) -> dict[str, Any]:
    """Return what `gpu-07=2` asks for."""
    node, _, count = text.partition("=")
    if not (count or "1").isdecimal():
        raise click.BadParameter(f"{text!r} is not NODE or NODE=COUNT", param_hint="--add")
    return {"like": node, "nodes": int(count or "1")}


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
