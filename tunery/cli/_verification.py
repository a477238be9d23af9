"""What `replay` and `reconcile` share: a stack's servers, and parts that are equal or not."""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeVar

import asyncpg
import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tunery.cli.journal.connection import open_log
from tunery.local import settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.platform.bus.kafka import KafkaSettings
from tunery.platform.connections import patient_kafka_settings
from tunery.runtime.tools.archived_log import ArchivedLog


class VerifiedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A stream or table that was compared; `difference` is the first one, null when equal.

    missing: why it could not be compared; null: it was
    """

    name: str
    count: int
    unit: str
    difference: str | None = None
    missing: str | None = None


class Result(Protocol):
    """Findings of a verifying command, by part."""

    @property
    def equal(self) -> bool:
        """True if all parts were compared, and none has a difference."""

    @property
    def parts(self) -> Sequence[VerifiedPart]:
        """Streams and tables, also those that could not be compared."""


DIFFERENT: Final = 1  # exit code
NOT_COMPARED: Final = 2  # exit code
R = TypeVar("R", bound=Result)


@asynccontextmanager
async def open_servers(folders: DataDir) -> AsyncIterator[tuple[ArchivedLog, str]]:
    """The log and PostgreSQL's address of the stack of `folders`, or as the environment says.

    Raises LocalError when there are none, or they do not answer inside the block.
    """
    reached, dsn = servers(folders, os.environ)
    try:
        async with open_log(folders) as log:
            yield log, dsn
    except asyncpg.UndefinedTableError as error:
        raise LocalError(
            f"the database has no tables of the services ({error})", "start them with `tunery up`"
        ) from error
    except (OSError, asyncpg.PostgresError) as error:
        raise LocalError(
            f"Kafka at {reached.bootstrap} or its PostgreSQL does not answer: {error}",
            "see `tunery status`; start the stack with `tunery up`",
        ) from error


def servers(folders: DataDir, environ: Mapping[str, str]) -> tuple[KafkaSettings, str]:
    """Kafka and PostgreSQL's address, as the environment or the stack says. Raises LocalError."""
    log = patient_kafka_settings(settings.log_settings(folders, environ))
    if dsn := environ.get("TUNERY_POSTGRES_DSN"):
        return log, dsn
    return log, settings.of_stack(folders, environ).postgres_dsn


def report(result: R, as_json: bool, show: Callable[[R], None]) -> None:
    """Print a result as JSON, or show it. Exit code 1 when something differs, 2 when nothing does
    and something could not be compared.
    """
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        show(result)
    if not result.equal:
        is_incomplete = any(part.missing for part in result.parts)
        differs = any(part.difference for part in result.parts)
        raise SystemExit(NOT_COMPARED if is_incomplete and not differs else DIFFERENT)


def show_parts(parts: Sequence[VerifiedPart], columns: tuple[str, str, str]) -> None:
    """A table of what was compared, with the first difference of each part."""
    table = Table(*columns)
    for part in parts:
        mark = Text("equal")
        if part.difference is not None:
            mark = Text(part.difference, style="red")
        elif part.missing is not None:
            mark = Text(f"not compared: {part.missing}", style="yellow")
        table.add_row(part.name, f"{part.count} {part.unit}", mark)
    Console().print(table)
