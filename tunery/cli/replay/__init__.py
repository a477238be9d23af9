"""`tunery replay --verify`: all state again from offset 0, compared with what is live."""

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
  tunery replay --verify           rebuild everything, compare, say the first difference
  tunery replay --verify --json    the same for programs; exit code 1 when something differs
"""


@click.command("replay", epilog=EPILOG)
@click.option("--verify", is_flag=True, required=True, help="Compare the rebuilt with the live.")
@_options.as_json
@_options.data_dir
def command(verify: bool, as_json: bool, folders: DataDir) -> None:
    """Rebuild jobs, quota, leases, data sets, models and the usage ledger from offset 0.

    Reads the log and PostgreSQL of the running stack (or $TUNERY_KAFKA_BOOTSTRAP and
    $TUNERY_POSTGRES_DSN) and changes nothing: rows are rebuilt in scratch schemas.
    """
    from tunery.cli.replay import verify as verification

    found = asyncio.run(verification.run(folders))
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found))
    else:
        _show(found)
    if not found.equal:
        raise SystemExit(1)


def _show(found: "Verification") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("part", "replayed", "live")
    for part in found.parts:
        mark = Text("equal") if part.difference is None else Text(part.difference, style="red")
        table.add_row(part.name, f"{part.count} {part.unit}", mark)
    console = Console()
    console.print(table)
    verdict = "equal to the unit" if found.equal else "[red]different[/red]"
    console.print(f"{found.records} accepted records folded from offset 0: {verdict}")
