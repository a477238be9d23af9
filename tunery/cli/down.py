"""`tunery down`: stop the stack in order."""

import json

import click
from rich.console import Console

from tunery.cli import _options
from tunery.local import lifecycle, state
from tunery.local.paths import DataDir
from tunery.local.state import StackState

EPILOG = """\
\b
Examples:
  tunery down
  tunery down --data-dir /srv/tunery
"""


@click.command("down", epilog=EPILOG)
@_options.data_dir
@_options.as_json
def command(folders: DataDir, as_json: bool) -> None:
    """Stop the stack; its data is kept.

    Services are stopped first, then servers. Processes that a killed stack left are ended, too.
    """
    console = Console(stderr=True)
    was_alive = state.read(folders).is_alive()
    with console.status("stopping") as spinner:

        def watch(now: StackState) -> None:
            left = sum(1 for child in now.children.values() if child.pid is not None)
            spinner.update(f"stopping, {left} left")

        leftovers = lifecycle.down(folders, watch)
    if as_json:
        click.echo(json.dumps({"was_running": was_alive, "leftovers": leftovers}))
        return
    if was_alive:
        click.echo("The stack is stopped.")
    elif not leftovers:
        click.echo(f"No stack is running on {folders.root}.")
    if leftovers:
        click.echo(f"Stopped what a killed stack had left running: {', '.join(leftovers)}.")
