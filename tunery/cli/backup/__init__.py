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
  tunery backup /mnt/backup                  what is new since the last one; nothing is stopped
  tunery backup /mnt/backup --json
  tunery backup /mnt/backup --without-objects  no list of object storage
\b
It reads the log of the running stack, or of $TUNERY_KAFKA_BOOTSTRAP, and restores with
`tunery restore`. Root keys, the key that signs models and secrets.json are not in it: keep copies
apart from it.
"""


@click.command("backup", epilog=EPILOG)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--without-objects",
    is_flag=True,
    help="Do not list what object storage has; `tunery restore` cannot compare it then.",
)
@_options.data_dir
@_options.as_json
def command(folder: Path, without_objects: bool, folders: DataDir, as_json: bool) -> None:
    """Back up into FOLDER, for operators, while everything runs.

    FOLDER gets what is new since the backup before: records of all journals up to a cut that has
    with each record the one that it follows from, wrapped data keys, and the names and sizes of all
    objects. Everything that was acknowledged before the command began is in it. The command may be
    killed at any moment: the next one does all of it.
    """
    manifest = asyncio.run(_take(folder, folders, without_objects))
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


async def _take(folder: Path, folders: DataDir, without_objects: bool) -> "Manifest":
    from contextlib import AsyncExitStack

    from tunery.cli.backup.folder import BackupFolder
    from tunery.cli.backup.surroundings import open_objects
    from tunery.cli.backup.taking import take
    from tunery.cli.journal.connection import open_log
    from tunery.local.settings import key_folders
    from tunery.runtime.clock import SystemClock

    target = BackupFolder(folder)
    keystore, _ = key_folders(folders, os.environ)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(open_log(folders))
        list_objects = None
        if not without_objects:
            list_objects = await stack.enter_async_context(open_objects(folders, os.environ))
        stack.enter_context(target.locked())
        return await take(log, target, keystore, list_objects, SystemClock().sleep)
