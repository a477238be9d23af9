"""`tunery status`: every server and service of a stack, with its phase and address."""

import json
import sys
from dataclasses import asdict

import click
from rich.console import Console

from tunery.cli import _options, _stack_view
from tunery.local import ports, state
from tunery.local.paths import DataDir
from tunery.local.state import StackPhase, StackState

NOT_READY = 3  # exit code, the same as that of `systemctl is-active`

EPILOG = """\
\b
Exit code 0 when the stack is ready, 3 when it is not.
\b
Examples:
  tunery status
  tunery status --json | jq .children.kafka
"""


@click.command("status", epilog=EPILOG)
@_options.data_dir
@_options.as_json
def command(folders: DataDir, as_json: bool) -> None:
    """Show every server and service of the stack."""
    now = state.read(folders)
    alive = now.is_alive()
    if as_json:
        click.echo(json.dumps(report(folders, now, alive=alive)))
    else:
        show(folders, now, alive=alive)
    sys.exit(0 if alive and now.phase is StackPhase.READY else NOT_READY)


def report(folders: DataDir, now: StackState, *, alive: bool) -> dict[str, object]:
    """The state of the stack as `--json` prints it."""
    gateway = ports.read(folders.ports).get("gateway")
    return {
        "running": alive,
        "state": str(now.phase if alive else StackPhase.STOPPED),
        "data_dir": str(folders.root),
        "api_url": f"http://{ports.HOST}:{gateway}" if alive and gateway else None,
        "ready_after_ms": now.ready_after_ms,
        "children": {name: asdict(child) for name, child in now.children.items()} if alive else {},
        "notes": now.notes,
        "failure": now.failure,
    }


def show(folders: DataDir, now: StackState, *, alive: bool) -> None:
    """Print the state of the stack for people."""
    console = Console()
    if not alive:
        how = {
            StackPhase.STOPPED: "is not running",
            StackPhase.FAILED: "could not start",
        }.get(now.phase, "was killed")
        console.print(f"The stack on {folders.root} {how}.", highlight=False, soft_wrap=True)
        if now.failure:
            console.print(now.failure, highlight=False, markup=False)
        console.print("  `tunery up` starts it again; its data is kept.", highlight=False)
        return
    gateway = ports.read(folders.ports).get("gateway")
    console.print(
        f"[bold]{now.phase}[/bold]  http://{ports.HOST}:{gateway}  [dim]{folders.root}[/dim]",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_stack_view.table(now))
    for note in now.notes:
        console.print(f"  {note}", style="dim", markup=False, highlight=False)
