"""`tunery backup`: copies the log, the keys and a list of the objects while everything runs."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunery.cli import _options
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from schemas.units import Ms
    from tunery.cli.backup.folder import Manifest

EPILOG = """\
\b
Examples:
  tunery backup /mnt/backup                    what is new since the last one; nothing is stopped
  tunery backup s3://backups/tunery            into a bucket
  tunery backup /mnt/backup --keep 24 --keep-daily 30  removes others; no record is lost
  tunery backup /mnt/backup --without-objects  no list of object storage
  tunery backup /mnt/backup --json
\b
It reads the log of the running stack, or of $TUNERY_KAFKA_BOOTSTRAP. A bucket is one of the
stack's object storage, or at $TUNERY_S3_ENDPOINT. `tunery restore` restores it. Root keys, the key
that signs models and secrets.json are not in it: keep copies apart from it.
"""


@click.command("backup", epilog=EPILOG)
@click.argument("folder", type=_options.FolderOrBucket())
@click.option(
    "--without-objects",
    is_flag=True,
    help="Do not list what object storage has; `tunery restore` cannot compare it then.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    help="Keep the newest N backups, and remove others that --keep-daily does not keep.",
)
@click.option(
    "--keep-daily",
    type=click.IntRange(min=1),
    help="Keep the newest backup of each of the last N days (UTC) that have one.",
)
@_options.data_dir
@_options.as_json
def command(
    folder: "Path | _options.Address",
    without_objects: bool,
    keep: int | None,
    keep_daily: int | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Back up into FOLDER, or s3://BUCKET/PREFIX, for operators, while everything runs.

    FOLDER gets what is new since the backup before: records of all journals up to a cut that has
    with each record the one that it follows from, wrapped data keys, and the names and sizes of all
    objects. Everything that was acknowledged before the command began is in it. The command may be
    killed at any moment: the next one does all of it.

    Of a backup that is removed, the list of objects goes; records stay, and with them each moment.
    """
    keeping = (keep or 0, keep_daily or 0) if keep or keep_daily else None
    manifest = asyncio.run(_take(folder, folders, without_objects, keeping))
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(summary(manifest)))
        return
    figures = summary(manifest)
    click.echo(
        f"backup {figures['number']} up to {figures['time']}: {figures['records']} records in "
        f"{len(manifest.ends)} journals, {figures['keys']} keys, "
        f"{figures['objects']} objects listed"
    )


def summary(manifest: "Manifest") -> "dict[str, str | int | None]":
    """Summary of a backup, for people and programs."""
    listed = manifest.inventory
    return {
        "number": manifest.number,
        "time": moment(manifest.cut_ms),
        "cut_ms": manifest.cut_ms,
        "records": sum(position.offset for position in manifest.ends.values()),
        "segments": len(manifest.segments),
        "keys": sum(root is not None for root in manifest.keys.values()),
        "erased": sum(root is None for root in manifest.keys.values()),
        "objects": listed.objects if listed else None,
        "object_bytes": listed.bytes if listed else None,
    }


def moment(at: "Ms") -> str:
    """The time in UTC, as `tunery restore --until` takes it."""
    return datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds")


async def _take(
    target: "Path | _options.Address",
    folders: DataDir,
    without_objects: bool,
    keeping: tuple[int, int] | None,
) -> "Manifest":
    from contextlib import AsyncExitStack

    from tunery.cli.backup.bucket import writable
    from tunery.cli.backup.pruning import Keep
    from tunery.cli.backup.surroundings import open_objects
    from tunery.cli.backup.taking import take
    from tunery.cli.journal.connection import open_log
    from tunery.local.settings import key_folders
    from tunery.runtime.clock import SystemClock

    keystore, _ = key_folders(folders, os.environ)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(open_log(folders))
        list_objects = None
        if not without_objects:
            list_objects = await stack.enter_async_context(open_objects(folders, os.environ))
        folder = await stack.enter_async_context(writable(target, folders, os.environ))
        keep = None if keeping is None else Keep(*keeping)
        return await take(log, folder, keystore, list_objects, SystemClock().sleep, keep)
