"""`tunery simulate`: plays a trace of jobs through the scheduler's planner."""

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunery.cli import _api, _options

if TYPE_CHECKING:
    from tunery.cli.simulate.trace_player import Played
    from tunery.cli.simulate.what_if import Setting

EPILOG = """\
\b
Examples:
  tunery simulate jobs.csv.gz                          the product's own policy
  tunery simulate jobs.csv --policy easy               EASY backfill, as a baseline
  tunery simulate log.swf.gz --nodes 32 --gpus-per-node 8 --json
  tunery simulate jobs.csv --what-if nodes=+2 --what-if 'tenant=acme*2' --html page.html
  tunery journal export pool pool.jsonl && tunery simulate pool.jsonl
  tunery simulate jobs.csv --spot us-east-1c.json.gz --spot-nodes 10
  tunery simulate pool.jsonl --decisions               decide the journal again, and compare
  tunery simulate pool.jsonl --estimates               how well estimates are calibrated
"""
AS_IS = "as it is"
NODES, SLOTS = 41, 8  # of a trace that does not say


@click.command("simulate", epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--policy",
    default="tunery",
    show_default=True,
    metavar="NAME",
    help="fifo, skip-ahead, easy, easy-sjf, sjf, fair-hours or tunery.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 100_000),
    help=f"Nodes of the pool. [those of the journal, else {NODES}]",
)
@click.option(
    "--gpus-per-node",
    type=click.IntRange(1, 256),
    help=f"Slots of each node. [those of the journal, else {SLOTS}]",
)
@click.option("--exact", is_flag=True, help="Take the true durations for estimates.")
@click.option(
    "--what-if",
    "questions",
    multiple=True,
    metavar="CHANGE",
    help="Play it once more with nodes=+2, nodes=40, tenant=NAME*2 or premium-cap=64."
    " May be repeated.",
)
@click.option(
    "--spot",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A series of spot machines: some of the nodes come and go as it says.",
)
@click.option(
    "--spot-nodes", type=click.IntRange(1, 100_000), help="How many of the nodes. [half of them]"
)
@click.option(
    "--notice",
    type=click.IntRange(0, 3_600),
    default=120,
    show_default=True,
    help="Seconds from the notice of a spot machine to its end.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write a page with the figures and plots.",
)
@click.option(
    "--decisions",
    is_flag=True,
    help="Of a journal: decide every record again; exit code 1 when one differs.",
)
@click.option(
    "--estimates",
    is_flag=True,
    help="Of a journal: how long each kind of work took, as a share of its estimates.",
)
@_options.as_json
def command(
    trace: Path,
    policy: str,
    nodes: int | None,
    gpus_per_node: int | None,
    exact: bool,
    questions: tuple[str, ...],
    spot: Path | None,
    spot_nodes: int | None,
    notice: int,
    html: Path | None,
    decisions: bool,
    estimates: bool,
    as_json: bool,
) -> None:
    """Play TRACE through the scheduler's planner, and print how long its jobs wait.

    TRACE is a CSV (submit_s, duration_s, gpus; job_id, tenant, tier and est_s if it has them; or
    the columns of the Philly trace), a file in the Standard Workload Format (.swf), or the pool's
    journal (`tunery journal export pool FILE`). It may be compressed (.gz).
    """
    from tunery.cli.simulate.outcome import outcome
    from tunery.cli.simulate.policies import POLICIES
    from tunery.cli.simulate.trace_player import play
    from tunery.cli.simulate.traces import TraceUnreadable, open_trace
    from tunery.cli.simulate.what_if import QuestionUnclear, Setting, ask

    if decisions:
        _compare_decisions(trace, as_json)
        return
    if estimates:
        _show_estimates(trace, as_json)
        return
    if policy not in POLICIES:
        names = ", ".join(POLICIES)
        raise click.ClickException(f"There is no policy {policy!r}. There are {names}.")
    try:
        opened = open_trace(trace)
        history = opened.history
        setting = Setting(
            opened.jobs,
            POLICIES[policy],
            nodes or (history.nodes if history else NODES),
            gpus_per_node or (history.slots if history else SLOTS),
        )
        if spot is not None:
            setting = _with_spot(setting, spot, spot_nodes, notice)
        settings = {AS_IS: setting} | {each: ask(setting, each) for each in questions}
    except (TraceUnreadable, QuestionUnclear) as error:
        raise click.ClickException(str(error)) from error
    played = {
        name: play(each.jobs, each.policy, each.nodes, each.slots, exact=exact, spot=each.spot)
        for name, each in settings.items()
    }
    if not all(each.jobs for each in played.values()):
        total = setting.nodes * setting.slots
        raise click.ClickException(f"{trace}: every job needs more than the {total} slots.")
    figures = {
        name: outcome(each, settings[name].nodes * settings[name].slots)
        for name, each in played.items()
    }
    said = _summary(trace, policy, setting, opened.left_out, played[AS_IS])
    if html is not None:
        from tunery.cli.simulate.page import page

        html.write_text(page(f"Simulation of {trace.name}", said, figures, played), "utf-8")
    _show(figures, said, as_json)


def _with_spot(setting: "Setting", file: Path, nodes: int | None, notice_s: int) -> "Setting":
    from tunery.cli.simulate.spot import SpotScenario, read_series

    count = max(1, setting.nodes // 2) if nodes is None else nodes
    if count > setting.nodes:
        raise click.ClickException(f"--spot-nodes {count}: the pool has {setting.nodes} nodes.")
    return replace(setting, spot=SpotScenario(read_series(file), count, 1_000 * notice_s))


def _summary(
    trace: Path, policy: str, setting: "Setting", left_out: int, played: "Played"
) -> list[str]:
    """Describe the simulated trace and cluster, and the jobs that were left out."""
    said = [f"{trace.name}: policy {policy}, {setting.nodes} nodes of {setting.slots} slots."]
    if left_out:
        said.append(f"{left_out} jobs are left out: they did not run, or have not ended.")
    if played.left_out:
        said.append(f"{played.left_out} jobs are left out: they need more slots than there are.")
    if setting.spot is not None:
        said.append(f"{setting.spot.nodes} of the nodes are spot machines.")
    if played.unfinished:
        said.append(f"{played.unfinished} jobs are left out: they never got through on spot nodes.")
    return said


def _show(figures: dict[str, dict[str, float | int]], said: list[str], as_json: bool) -> None:
    """One line for each figure, and one column for each what-if."""
    first, *others = figures.values()
    if as_json:
        what_if = {name: each for name, each in figures.items() if name != AS_IS}
        click.echo(json.dumps(first | ({"what_if": what_if} if what_if else {})))
        return
    for line in said:
        click.echo(line, err=True)
    if not others:
        _api.show_one(first, False, [(name, value) for name, value in first.items()])
        return
    _api.show_rows(
        list(first),
        False,
        ["", *figures],
        lambda key: [key, *(each.get(key) for each in figures.values())],
    )


def _show_estimates(trace: Path, as_json: bool) -> None:
    from tunery.cli.simulate.outcome import calibration_of_works
    from tunery.cli.simulate.traces import TraceUnreadable, open_trace

    try:
        rows = calibration_of_works(open_trace(trace).jobs)
    except TraceUnreadable as error:
        raise click.ClickException(str(error)) from error
    if not rows:
        raise click.ClickException(f"{trace}: no job of it succeeded, or it is no journal.")
    columns = ("work", "jobs", "median_of_estimate_pct", "within_p50_pct", "within_p90_pct")
    _api.show_rows(rows, as_json, columns, lambda row: [row.get(column) for column in columns])


def _compare_decisions(trace: Path, as_json: bool) -> None:
    from tunery.cli.simulate.journals import JournalUnreadable, compare_decisions
    from tunery.cli.simulate.traces import TraceUnreadable, read_content

    try:
        compared = compare_decisions(BytesIO(read_content(trace)))
    except JournalUnreadable as error:
        raise click.ClickException(f"{trace}, {error}") from error
    except TraceUnreadable as error:
        raise click.ClickException(str(error)) from error
    report: dict[str, Any] = {
        "records": compared.records,
        "decisions": compared.compared,
        "kinds": dict(sorted(compared.kinds.items())),
        "different_records": len(compared.differences),
    }
    if compared.differences:
        first = compared.differences[0]
        report["first_difference"] = first.location
        report["recorded"] = ", ".join(first.recorded) or "nothing"
        report["decided_now"] = ", ".join(first.decided) or "nothing"
    _api.show_one(report, as_json, list(report.items()))
    if compared.differences:
        raise SystemExit(1)
