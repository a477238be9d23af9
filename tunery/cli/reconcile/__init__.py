"""`tunery reconcile`: compares the log with the ledger, job costs and invoices."""

import asyncio
from typing import TYPE_CHECKING

import click

from tunery.cli import _options
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.cli.reconcile.comparison import Reconciliation

EPILOG = """\
\b
Examples:
  tunery reconcile            log, ledger, answers, job costs and invoices: the first difference
  tunery reconcile --json     the same as JSON; exit code 1 when something differs
"""


@click.command("reconcile", epilog=EPILOG)
@_options.as_json
@_options.data_dir
def command(as_json: bool, folders: DataDir) -> None:
    """Compare what was used, billed and invoiced, for operators.

    Reads the log and PostgreSQL of the running stack (or $TUNERY_KAFKA_BOOTSTRAP and
    $TUNERY_POSTGRES_DSN) and changes nothing. A difference names its event: topic, partition and
    offset.
    """
    from tunery.cli._verification import report
    from tunery.cli.reconcile import comparison

    report(asyncio.run(comparison.run(folders)), as_json, _show)


def _show(result: "Reconciliation") -> None:
    from tunery.cli._verification import show_parts

    show_parts(result.parts, ("part", "compared", "result"))
