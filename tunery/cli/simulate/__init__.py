"""`tunery simulate`: plays a trace of jobs through the scheduler's planner.

`traces` reads job traces; `policies` names the ways to serve the queue; `trace_player` plays them
on virtual time; `outcome` is what came of it. The planner is the scheduler's own, not a copy.
"""

from pathlib import Path

import click

from tunery.cli import _api, _options

EPILOG = """\
\b
Examples:
  tunery simulate jobs.csv.gz                          the product's own policy
  tunery simulate jobs.csv --policy easy               EASY backfill, as a baseline
  tunery simulate log.swf.gz --nodes 32 --gpus-per-node 8 --json
"""


@click.command("simulate", epilog=EPILOG)
@click.argument("trace", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--policy",
    default="tunery",
    show_default=True,
    metavar="NAME",
    help="fifo, skip-ahead, easy, easy-sjf, sjf or tunery.",
)
@click.option("--nodes", default=41, show_default=True, help="Nodes of the pool.")
@click.option("--gpus-per-node", default=8, show_default=True, help="Slots of each node.")
@click.option("--exact", is_flag=True, help="Take the true durations for estimates.")
@_options.as_json
def command(
    trace: Path, policy: str, nodes: int, gpus_per_node: int, exact: bool, as_json: bool
) -> None:
    """Play TRACE through the scheduler's planner, and print how long its jobs wait.

    TRACE is a CSV (job_id, submit_s, duration_s, gpus; tenant, tier and est_s if it has them) or a
    file in the Standard Workload Format (.swf); both may be compressed (.gz).
    """
    from tunery.cli.simulate.outcome import outcome
    from tunery.cli.simulate.policies import POLICIES
    from tunery.cli.simulate.trace_player import play
    from tunery.cli.simulate.traces import TraceUnreadable, read_trace

    if policy not in POLICIES:
        names = ", ".join(POLICIES)
        raise click.ClickException(f"There is no policy {policy!r}. There are {names}.")
    try:
        jobs = read_trace(trace)
    except TraceUnreadable as error:
        raise click.ClickException(str(error)) from error
    played = play(jobs, POLICIES[policy], nodes, gpus_per_node, exact=exact)
    figures = outcome(played, nodes * gpus_per_node)
    _api.show_one(figures, as_json, [(name, value) for name, value in figures.items()])
