"""`tunery demo`: the whole loop on this machine, with a machine that dies on the way."""

import asyncio
import json
import sys
from pathlib import Path

import click

EPILOG = """\
\b
Examples:
  tunery demo                    about five minutes on two cores
  tunery demo --keep             leave its data directory, for a look at logs and blobs
  tunery demo --data mine.jsonl  the same with your own rows
  tunery demo --json             the story on stderr, one JSON object last on stdout
"""


@click.command("demo", epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object last.")
@click.option("--keep", is_flag=True, help="Keep the data directory.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Your own training file instead of examples/lighthouse.jsonl.",
)
def command(as_json: bool, keep: bool, data: Path | None) -> None:
    """Upload, validate, train, kill a machine, resume, gate, register, bill: and check it all.

    Exit code 0 only when every claim held.
    """
    from tunery.cli.demo.display import View
    from tunery.cli.demo.run import Options, tell

    view = View(to_stderr=as_json)
    told = asyncio.run(tell(Options(data=data, keep=keep), view))
    view.verdict(told)
    if as_json:
        click.echo(json.dumps({"claims": told.held, "figures": told.figures}))
    sys.exit(0 if told.all_held else 1)
