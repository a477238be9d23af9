"""`tunery upgrade`: who runs which release, and the end of an upgrade."""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunery.cli import _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.runtime.tools.upgrade import UpgradeState

EPILOG = """\
\b
Examples:
  tunery upgrade status            who runs which release, and who is waited for
  tunery upgrade status --json
  tunery upgrade finalize          there is no way back to the release before after that
  tunery upgrade finalize --secret command-secret.txt
\b
They read the log of the running stack, or of $TUNERY_KAFKA_BOOTSTRAP.
"""
secret_option = click.option(
    "--secret",
    "secret_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the secret of commands. [that of the data directory]",
)


@click.group("upgrade", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show how far an upgrade is, and finish it.

    A new release writes nothing that the one before could not read, until all processes can read it
    and an operator finishes the upgrade. Until then the release before can be started again.
    """


@command.command("status")
@secret_option
@_options.data_dir
@_options.as_json
def status(secret_file: Path | None, folders: DataDir, as_json: bool) -> None:
    """Show the level of the log, which process can read which, and what is waited for."""
    state = asyncio.run(read_state(folders, secret_file))
    waited_for = state.waited_for()
    if as_json:
        import msgspec

        can_finalize = not waited_for and state.level < state.readable
        more = {"waited_for": waited_for, "can_finalize": can_finalize}
        click.echo(json.dumps(msgspec.to_builtins(state) | more))
        return
    _print(state, waited_for)


@command.command("finalize")
@secret_option
@_options.data_dir
@_options.as_json
def finalize(secret_file: Path | None, folders: DataDir, as_json: bool) -> None:
    """Raise the log to the highest level of this release.

    From then on services write what is new in it, and releases that cannot read that refuse to
    start. The order is signed and stays on the log. Refused while a process runs that cannot read
    the level.
    """
    from tunery.cli.journal import refusing
    from tunery.cli.journal.connection import open_log
    from tunery.runtime.tools.upgrade import raise_level

    async def order() -> "UpgradeState":
        state = await read_state(folders, secret_file)
        if state.level >= state.readable:
            return state
        if waited_for := state.waited_for():
            raise LocalError(
                f"the log stays at level {state.level}, as not all can read level "
                f"{state.readable}:\n  " + "\n  ".join(waited_for),
                "update these, or stop them; `tunery upgrade status` shows who is left",
            )
        keys = refusing.operator_keys(folders, secret_file, os.environ)
        behind = [name for name, level in state.levels.items() if level < state.readable]
        async with open_log(folders) as log:
            await raise_level(log, keys, behind, state.readable, refusing.author())
        return state

    state = asyncio.run(order())
    if as_json:
        click.echo(json.dumps({"level": state.readable, "was": state.level}))
    elif state.level >= state.readable:
        click.echo(f"the log is at level {state.level}: there is nothing to finish")
    else:
        click.echo(f"the log is raised from level {state.level} to {state.readable}")


async def read_state(folders: DataDir, secret_file: Path | None) -> "UpgradeState":
    """Read the state of an upgrade, with an operator's keys. Raises LocalError."""
    from schemas.topics import SOURCES
    from tunery.cli.journal import refusing
    from tunery.cli.journal.connection import open_log
    from tunery.runtime.clock import SystemClock
    from tunery.runtime.tools.upgrade import read_upgrade

    keys = refusing.operator_keys(folders, secret_file, os.environ)
    async with open_log(folders) as log:
        return await read_upgrade(log, keys, SOURCES, SystemClock().now_ms())


def _print(state: "UpgradeState", waited_for: list[str]) -> None:
    from rich.console import Console

    from tunery.cli._tables import table_lines

    console = Console()
    columns = ("service", "process", "release", "reads level", "heard")
    rows = [
        (
            *(each.service, each.process, each.release, each.level),
            f"{each.silent_ms // 1_000} s ago",
        )
        for each in state.processes
    ]
    for line in table_lines(columns, rows, console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True)
    click.echo(f"log: level {state.level}; this release reads up to level {state.readable}")
    for name in waited_for:
        click.echo(f"waited for: {name}")
    if not waited_for and state.level < state.readable:
        click.echo("next: `tunery upgrade finalize`; there is no way back after that")
