"""`tunery replay`: rebuilds all state, or one session, from the log and compares it."""

import asyncio
from pathlib import Path
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
  tunery replay session-91…        a session's commands once more: equal weights, equal bill
\b
Exit code: 0 all is equal, 1 something differs, 2 nothing differs, but not all is there to compare.
"""


@click.command("replay", epilog=EPILOG)
@click.argument("session_id", required=False)
@click.option(
    "--verify", is_flag=True, help="Compare the rebuilt state with the live state. [always]"
)
@click.option(
    "--base",
    type=click.Path(file_okay=False, exists=True, path_type=Path, resolve_path=True),
    help="Folder of the session's base model. [where nodes have it]",
)
@_options.as_json
@_options.data_dir
def command(
    session_id: str | None, verify: bool, base: Path | None, as_json: bool, folders: DataDir
) -> None:
    """Rebuild all state from the log and compare it, or run one session once more.

    Rebuilds jobs, quota, leases, datasets, models and the usage ledger from offset 0.

    Of a SESSION_ID it runs the commands on this machine, which reads them from object storage with
    the tenant's key, and compares answers, saved weights, the adapter, tokens and the bill. Once
    these were erased it compares tokens and the bill alone, and says so.

    Reads the log and PostgreSQL of the running stack (or $TUNERY_KAFKA_BOOTSTRAP and
    $TUNERY_POSTGRES_DSN) and changes nothing: rows are rebuilt in scratch schemas.
    """
    from tunery.cli._verification import report
    from tunery.cli.replay import session
    from tunery.cli.replay import verify as verification

    if session_id is None:
        report(asyncio.run(verification.run(folders)), as_json, _show)
    else:
        report(asyncio.run(session.run(folders, session_id, base)), as_json, _show_session)


def _show_session(result: "Verification") -> None:
    from rich.console import Console

    from tunery.cli._verification import show_parts

    show_parts(result.parts, ("part", "replayed", "log"))
    verdict = "equal to the byte" if result.equal else "[red]different[/red]"
    if not any(part.difference for part in result.parts):
        gone = {part.missing for part in result.parts if part.missing}
        if gone:
            verdict = f"[yellow]{'; '.join(gone)}; what is left is equal[/yellow]"
    Console().print(f"{result.records} commands of the session: {verdict}")


def _show(result: "Verification") -> None:
    from rich.console import Console

    from tunery.cli._verification import show_parts

    show_parts(result.parts, ("part", "replayed", "live"))
    verdict = "equal to the unit" if result.equal else "[red]different[/red]"
    Console().print(f"{result.records} accepted records folded from offset 0: {verdict}")
