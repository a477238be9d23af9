"""`tunery journal`: inspects, verifies, exports, imports and archives journals."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _options
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.runtime.tools.archiving import ArchiveReport
    from tunery.runtime.tools.inspection import PartitionReport, RecordReport

STREAMS: Final = (
    "account",
    "dataset",
    "job",
    "model",
    "pool",
    "session",
)  # as in the catalogue; a test says so
PARTITION: Final = click.IntRange(0, 7)
EPILOG: Final = """\
\b
Examples:
  tunery journal tail job                     the last records of each partition
  tunery journal tail job --key acme -f       one tenant's records, and new ones as they come
  tunery journal tail pool --void             also records that do not count, and why
  tunery journal inspect job 3 1207           one record, decoded, or why it cannot be decoded
  tunery journal inspect job 3 41 --commands  one command of the stream
  tunery journal refuse pool 0 1207 --reason "names a node that never was"
  tunery journal verify                       the hash chain of every partition
  tunery journal verify job --json
  tunery journal export job job.jsonl
  tunery journal export job - | zstd > job.jsonl.zst
  tunery journal archive --dry-run            what has been on the log for 90 days
  tunery journal archive --older-than 30
  tunery journal import job.jsonl             into an empty stream
  tunery journal import job.jsonl --replace   in place of its content
\b
They read the log of the running stack, or of $TUNERY_KAFKA_BOOTSTRAP.
"""


@click.group("journal", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Inspect, verify, export, import and archive journals.

    All state is computed from journals: the decisions of the services, one topic for each stream.
    """


@command.command("tail")
@click.argument("stream", type=click.Choice(STREAMS))
@click.option("--partition", "-p", type=PARTITION, help="Only this one. [all]")
@click.option("--key", "-k", help="Only records of this tenant (or pool).")
@click.option("--void", "with_void", is_flag=True, help="Also show claims and void records.")
@click.option(
    "--lines",
    "-n",
    "lines_max",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Records from the end.",
)
@click.option("--follow", "-f", is_flag=True, help="Print new records as they are written.")
@_options.data_dir
@_options.as_json
def tail(
    stream: str,
    partition: int | None,
    key: str | None,
    with_void: bool,
    lines_max: int,
    follow: bool,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Show the newest records of STREAM. JSON: one object per line.

    A partition that readers cannot read ends with the record that stops them.
    """
    from tunery.cli.journal import scan
    from tunery.cli.journal.connection import open_log
    from tunery.runtime.bus.partitioner import partition_of

    if key is not None and partition is None:
        partition = partition_of(key.encode())

    async def show() -> None:
        async with open_log(folders) as log:
            options = scan.TailOptions(key, with_void, lines_max, follow)
            async for record in scan.tail(log, stream, scan.partitions_of(partition), options):
                _print_line(record, as_json)

    try:
        asyncio.run(show())
    except KeyboardInterrupt:
        return


@command.command("inspect")
@click.argument("stream", type=click.Choice(STREAMS))
@click.argument("partition", type=PARTITION)
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--commands", is_flag=True, help="Show a command instead of a journal record.")
@click.option("--unseal", is_flag=True, help="Decrypt sealed text with the keys of this machine.")
@_options.data_dir
@_options.as_json
def inspect(
    stream: str,
    partition: int,
    offset: int,
    commands: bool,
    unseal: bool,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Show one record of STREAM: its content, and whether and why it counts.

    Exit code 1 when readers stop at it or before it, or when it is a command that cannot be read.
    """
    from tunery.cli.journal import scan
    from tunery.cli.journal.connection import open_log
    from tunery.local.settings import key_folders
    from tunery.runtime.tools.inspection import mention

    show = scan.unsealer(*key_folders(folders, os.environ)) if unseal else mention

    async def inspect_one() -> "RecordReport":
        async with open_log(folders) as log:
            at = scan.inspect_command if commands else scan.inspect
            return await at(log, stream, partition, offset, show)

    record = asyncio.run(inspect_one())
    if as_json:
        _json(record)
    else:
        _print_record(record)
    if record.verdict in {"divergent", "unreadable", "unreached", "refused"}:
        raise SystemExit(1)


@command.command("refuse")
@click.argument("stream", type=click.Choice(STREAMS))
@click.argument("partition", type=PARTITION)
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--reason", required=True, help="Why, for those who read the journal later.")
@click.option(
    "--secret",
    "secret_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the secret of commands. [that of the data directory]",
)
@_options.data_dir
@_options.as_json
def refuse(
    stream: str,
    partition: int,
    offset: int,
    reason: str,
    secret_file: Path | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Have the command at OFFSET refused, which stops its partition of STREAM.

    OFFSET is that of the commands, as the log line of the stopped partition has it. The order is
    signed and stays in the journal; the owner rejects the command and continues. Nothing else of it
    happens, so look first at what it asked for.
    """
    from tunery.cli.journal import refusing
    from tunery.cli.journal.connection import open_log

    async def order() -> "refusing.Refused":
        keys = refusing.operator_keys(folders, secret_file, os.environ)
        async with open_log(folders) as log:
            author = refusing.author()
            return await refusing.refuse(log, stream, partition, offset, author, reason, keys)

    refused = asyncio.run(order())
    if as_json:
        _json(refused)
        return
    click.echo(
        f"{stream}/{partition}: command {refused.command_id} is to be refused; the order is at "
        f"offset {refused.claim} of the journal"
    )


@command.command("verify")
@click.argument("streams", nargs=-1, type=click.Choice(STREAMS))
@click.option("--partition", "-p", type=PARTITION, help="Only this one. [all]")
@_options.data_dir
@_options.as_json
def verify(
    streams: tuple[str, ...], partition: int | None, folders: DataDir, as_json: bool
) -> None:
    """Verify the hash chain of STREAMS [all] from the first record; name the first bad one.

    The head is the hash of a partition's last record: equal heads are equal journals. Streams refer
    to each other: a record that follows from one which another journal does not have is named, too.
    Exit code 1 when a record is bad.
    """
    from tunery.cli.journal import scan
    from tunery.cli.journal.connection import open_log

    async def walk() -> "list[PartitionReport]":
        async with open_log(folders) as log:
            return [
                tally
                for stream in streams or STREAMS
                for tally in await scan.verify(log, stream, scan.partitions_of(partition))
            ]

    _report(asyncio.run(walk()), as_json)


@command.command("export")
@click.argument("stream", type=click.Choice(STREAMS))
@click.argument("file", type=click.Path(dir_okay=False, writable=True, allow_dash=True))
@click.option("--partition", "-p", type=PARTITION, help="Only this one. [all]")
@_options.data_dir
@_options.as_json
def export(stream: str, file: str, partition: int | None, folders: DataDir, as_json: bool) -> None:
    """Write the records of STREAM to FILE (JSON lines; `-`: standard output).

    Sealed text stays sealed: keys and blobs are not part of a journal. Exit code 1 when a
    partition does not verify; its records are in the file nevertheless.
    """
    from tunery.cli.journal import scan
    from tunery.cli.journal.connection import open_log

    async def write() -> "list[PartitionReport]":
        async with open_log(folders) as log:
            # an existing file is replaced only by a complete one
            with click.open_file(file, "wb", atomic=True) as target:
                return await scan.export(log, stream, scan.partitions_of(partition), target)

    _report(asyncio.run(write()), as_json, err=file == "-")


@command.command("archive")
@click.argument("streams", nargs=-1, type=click.Choice(STREAMS))
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(min=0),
    default=90,
    show_default=True,
    help="Leave records of the last N days in Kafka.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be archived, and change nothing.")
@_options.data_dir
@_options.as_json
def archive(
    streams: tuple[str, ...], days: int, dry_run: bool, folders: DataDir, as_json: bool
) -> None:
    """Move old records of STREAMS [all] from Kafka to object storage, in the bucket BUCKET-archive.

    Only records behind both snapshots of their partition, and only after they were read back from
    there and compared. Services and commands go on reading journals from the first record on.
    Services may run meanwhile. It can be killed at any moment, and run again.
    """
    from schemas.units import DAY_MS
    from tunery.cli.journal import archiving, render
    from tunery.cli.journal.connection import open_log
    from tunery.runtime.clock import SystemClock

    async def move() -> "list[ArchiveReport]":
        before_ms = SystemClock().now_ms() - days * DAY_MS
        async with open_log(folders) as log:
            return await archiving.archive_all(log, streams or STREAMS, before_ms, dry_run=dry_run)

    reports = asyncio.run(move())
    if as_json:
        _json(reports)
    else:
        render.print_archived(reports, dry_run=dry_run)


@command.command("import")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)
@click.option("--replace", is_flag=True, help="Delete the present journals of the streams first.")
@_options.data_dir
@_options.as_json
def import_journal(files: tuple[Path, ...], replace: bool, folders: DataDir, as_json: bool) -> None:
    """Import the partitions in FILES, each followed by an operator's claim.

    Stop the services first (`tunery down`, then `tunery up --no-services`). All files are verified
    before anything is written. A journal that is not empty is refused unless --replace is given.
    Name the exports of all streams at once: exports of different moments, whose streams refer to
    records that others lack, are refused.
    """
    from tunery.cli.journal.connection import open_log
    from tunery.cli.journal.restore import Restored, restore

    async def import_all() -> "list[Restored]":
        async with open_log(folders) as log:
            return await restore(log, files, replace=replace)

    restored = asyncio.run(import_all())
    if as_json:
        _json(restored)
        return
    for partition in restored:
        click.echo(
            f"{partition.stream}/{partition.partition}: {partition.records} records; command "
            f"{partition.next_command} is next, in incarnation {partition.incarnation}"
        )


# --- output -----------------------------------------------------------------------------


def _json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value))


def _print_line(record: "RecordReport", as_json: bool) -> None:
    from tunery.cli.journal import render

    if as_json:
        _json(record)
    else:
        render.print_line(record)


def _print_record(record: "RecordReport") -> None:
    from tunery.cli.journal import render

    render.print_record(record)


def _report(tallies: "Iterable[PartitionReport]", as_json: bool, err: bool = False) -> None:
    """Print a table or one JSON object. Exit code 1 when a partition is bad."""
    from tunery.cli.journal.render import print_table
    from tunery.runtime.tools.inspection import missing_causes

    partitions = list(tallies)
    missing = list(missing_causes(partitions))
    sound = not missing and all(tally.bad is None for tally in partitions)
    if as_json:
        import msgspec

        report = {"sound": sound, "missing": missing, "partitions": partitions}
        click.echo(msgspec.json.encode(report), err=err)
    else:
        print_table(partitions, err=err)
        for text in missing:
            click.echo(f"bad: {text}", err=err)
    if not sound:
        raise SystemExit(1)
