"""`tunery demo`: the whole loop on this machine, with a machine that dies on the way."""

import asyncio
import json
import sys
from pathlib import Path

import click

EPILOG = """\
\b
Examples:
  tunery demo                    five to eight minutes on two cores
  tunery demo --keep             leave it up until Ctrl-C, for the console, and keep its files
  tunery demo --data mine.jsonl  the same with your own rows
  tunery demo --kubernetes       trains in pods of a small cluster, which it builds once
  tunery demo --from-openai      the move from an account, played by a stand-in, to a chat
  tunery demo --json             the demo on stderr, one JSON object last on stdout
  tunery demo --record docs      also write docs/demo.md and two pictures of the terminal
"""


@click.command("demo", epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object last.")
@click.option("--keep", is_flag=True, help="Stay up until Ctrl-C, and keep the data directory.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Your own training file instead of examples/lighthouse.jsonl.",
)
@click.option(
    "--from-openai",
    is_flag=True,
    help="Move a model from an OpenAI account instead; a stand-in on this machine plays it.",
)
@click.option(
    "--kubernetes",
    is_flag=True,
    help="Train in pods, as `tunery up --kubernetes` does; the agent of the cluster is killed.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Write the transcript and pictures of a run whose claims all held into this folder.",
)
def command(
    as_json: bool,
    keep: bool,
    data: Path | None,
    from_openai: bool,
    kubernetes: bool,
    record: Path | None,
) -> None:
    """Run the whole loop on this machine, and check every claim.

    Validates files, trains, kills a node, resumes, evaluates, registers and bills.

    Exit code 0 only when every claim held.
    """
    from tunery.cli.demo import recording
    from tunery.cli.demo.display import Display
    from tunery.cli.demo.run import DemoOptions, run_demo

    if from_openai and (data is not None or record is not None or kubernetes):
        raise click.UsageError(
            "--from-openai has its own rows and no page: no --data, no --record, no --kubernetes."
        )
    if kubernetes and record is not None:
        raise click.UsageError("--record writes the page of a demo without --kubernetes.")
    display = Display(to_stderr=as_json)
    options = DemoOptions(data=data, from_openai=from_openai, kubernetes=kubernetes, keep=keep)
    result = asyncio.run(run_demo(options, display))
    display.summary(result)
    if record is not None and result.all_held:
        for path in recording.write(display, record):
            display.line(f"written: {path}")
    if as_json:
        click.echo(json.dumps({"claims": result.held, "figures": result.figures}))
    sys.exit(0 if result.all_held else 1)
