"""`tunery restore`: an empty installation becomes the one of a backup, at any moment of it."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunery.cli import _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from schemas.units import Ms
    from tunery.cli.backup.restoring import Allowed, Checked, RestoreReport
    from tunery.cli.backup.surroundings import ListObjects
    from tunery.runtime.bus.abstract import OperatedLog

EPILOG = """\
\b
Examples:
  tunery restore /mnt/backup --check                        reads all of it, writes nothing
  tunery restore /mnt/backup                                all of it
  tunery restore s3://backups/tunery                        from a bucket
  tunery restore /mnt/backup --until 2026-11-29T14:05:00Z   nothing after this moment
  tunery restore /mnt/backup --without-objects              although storage lacks some
  tunery restore /mnt/backup --json
\b
It writes into the stack of --data-dir, or into $TUNERY_KAFKA_BOOTSTRAP, whose services must not
run: `tunery up --no-services --detach` first.
"""


@click.command("restore", epilog=EPILOG)
@click.argument("folder", type=_options.FolderOrBucket(exists=True))
@click.option("--until", metavar="TIME", help="Nothing after this moment: ISO 8601 with a zone.")
@click.option("--check", "is_check", is_flag=True, help="Verify the backup, and write nothing.")
@click.option("--without-keys", is_flag=True, help="Go on although some data keys do not open.")
@click.option("--without-objects", is_flag=True, help="Go on although storage lacks objects.")
@click.option(
    "--secret",
    "secret_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the secret of commands. [that of the data directory]",
)
@_options.data_dir
@_options.as_json
def command(
    folder: "Path | _options.Address",
    until: str | None,
    is_check: bool,
    without_keys: bool,
    without_objects: bool,
    secret_file: Path | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Restore a backup into an empty installation, for operators.

    FOLDER is where `tunery backup` has made it, or s3://BUCKET/PREFIX.

    First everything is verified: hashes of files, the hash chain of every journal, that the
    journals fit together, that the data keys open with the root keys that are here, and that object
    storage has what the backup lists. Then the journals are written. Rows of PostgreSQL are
    computed from them when the services start. A restore that was killed goes on when it is run
    again.
    """
    from tunery.cli.backup.bucket import readable
    from tunery.cli.backup.restoring import Allowed, check, report

    until_ms = None if until is None else parse_moment(until)

    async def checked_or_restored() -> "RestoreReport":
        async with readable(folder, folders, os.environ) as backup:
            checked = check(backup, until_ms)
            if is_check:
                return report(checked, {}, [], 0)
            allowed = Allowed(keys=without_keys, objects=without_objects)
            return await _restore(checked, folders, secret_file, allowed)

    done = asyncio.run(checked_or_restored())
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(done))
    else:
        _show(done, is_check)


def parse_moment(text: str) -> "Ms":
    """Return a time in ms since 1970. Raises UsageError for what is no time, or has no zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise click.UsageError(
            f"--until {text!r} is no time with a zone; write it like 2026-11-29T14:05:00Z"
        )
    return int(at.astimezone(UTC).timestamp() * 1_000)


def _show(done: "RestoreReport", is_check: bool) -> None:
    from tunery.cli.backup import moment

    verb = "sound" if is_check else "restored"
    click.echo(f"{verb}: {done.records} records up to {moment(done.cut_ms)}")
    if is_check:
        return
    click.echo(f"{done.keys} data keys")
    if done.continued:
        click.echo(
            f"{done.continued} records were there already, from a restore that was interrupted"
        )
    if done.reactions_again:
        click.echo("all reactions are sent again, and dropped by those who have them")
    for tenant, why in done.unopened_keys.items():
        click.echo(f"key of {tenant}: {why}")
    for name in done.missing_objects:
        click.echo(f"missing in object storage: {name}")
    click.echo("next: start the services, then `tunery replay --verify` and `tunery reconcile`")


async def _restore(
    checked: "Checked", folders: DataDir, secret_file: Path | None, allowed: "Allowed"
) -> "RestoreReport":
    from tunery.cli.backup.restoring import restore
    from tunery.local.settings import key_folders

    keystore, roots = key_folders(folders, os.environ)
    async with _installation(folders, secret_file) as target:
        return await restore(
            checked, target, keystore, roots, allowed, lambda line: click.echo(line, err=True)
        )


@asynccontextmanager
async def _installation(
    folders: DataDir, secret_file: Path | None
) -> "AsyncIterator[_Installation]":
    from tunery.cli.backup.surroundings import open_objects
    from tunery.cli.journal.connection import open_log

    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(open_log(folders))
        list_objects = await stack.enter_async_context(open_objects(folders, os.environ))
        yield _Installation(log, list_objects, folders, secret_file)


@dataclass(frozen=True)
class _Installation:
    """Implements `Installation` with real servers."""

    log: "OperatedLog"
    list_objects: "ListObjects"
    folders: DataDir
    secret_file: Path | None

    async def rows_in(self) -> str | None:
        """Raises LocalError when PostgreSQL does not answer."""
        import asyncpg

        from tunery.cli._verification import servers

        _, dsn = servers(self.folders, os.environ)
        try:
            connection = await asyncpg.connect(dsn)
            try:
                schemas = await connection.fetch(
                    "SELECT quote_ident(table_schema) AS name FROM information_schema.tables "
                    "WHERE table_name = 'positions' ORDER BY 1"
                )
                for (schema,) in schemas:
                    rows = f"SELECT 1 FROM {schema}.positions WHERE next_offset > 0 LIMIT 1"  # noqa: S608  # quoted by the server
                    if await connection.fetchval(rows):
                        return str(schema)
            finally:
                await connection.close()
        except (OSError, asyncpg.PostgresError) as error:
            raise LocalError(f"PostgreSQL failed: {error}", "see `tunery status`") from error
        return None

    async def raise_levels(self, levels: Mapping[str, int]) -> None:
        """Give the orders of the old installation anew, signed with the secret of this one."""
        from tunery.cli.journal import refusing
        from tunery.runtime.tools.upgrade import raise_level

        keys = refusing.operator_keys(self.folders, self.secret_file, os.environ)
        for stream, level in levels.items():
            await raise_level(self.log, keys, [stream], level, refusing.author())
