"""`tunery replay --verify`: rebuilds all state from the log and compares it with the live one."""

import asyncio
from typing import TYPE_CHECKING

import click

from tunery.cli import _options
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.cli.replay.verify import Verification

EPILOG = """\
\b
Examples:
  tunery replay --verify           rebuild everything and print the first difference
  tunery replay --verify --json    the same as JSON; exit code 1 when something differs
"""


@click.command("replay", epilog=EPILOG)
@click.option(
    "--verify", is_flag=True, help="Compare the rebuilt state with the live state. [always]"
)
@_options.as_json
@_options.data_dir
def command(verify: bool, as_json: bool, folders: DataDir) -> None:
    """Rebuild all state from the log and compare it.

    Rebuilds jobs, quota, leases, datasets, models and the usage ledger from offset 0.

    Reads the log and PostgreSQL of the running stack (or $TUNERY_KAFKA_BOOTSTRAP and
    $TUNERY_POSTGRES_DSN) and changes nothing: rows are rebuilt in scratch schemas.
    """
    from tunery.cli._verification import report
    from tunery.cli.replay import verify as verification

    report(asyncio.run(verification.run(folders)), as_json, _show)


def _show(result: "Verification") -> None:
    from rich.console import Console

    from tunery.cli._verification import show_parts

    show_parts(result.parts, ("part", "replayed", "live"))
    verdict = "equal to the unit" if result.equal else "[red]different[/red]"
    Console().print(f"{result.records} accepted records folded from offset 0: {verdict}")
