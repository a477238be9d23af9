"""`tunery journal`: look at journals, verify them, take them along, bring them back."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _options
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.runtime.tools.inspection import Looked, Tally

STREAMS: Final = (
    "account",
    "dataset",
    "job",
    "model",
    "pool",
)  # as in the catalogue; a test says so
PARTITION: Final = click.IntRange(0, 7)
EPILOG: Final = """\
\b
Examples:
  tunery journal tail job                     the last records of each partition
  tunery journal tail job --key acme -f       one tenant's, and on as they are written
  tunery journal tail pool --void             also what does not count, and why not
  tunery journal inspect job 3 1207           one record, decoded, or why it cannot be
  tunery journal inspect job 3 41 --commands  one command that waits, or stopped its owner
  tunery journal verify                       the hash chain of every partition
  tunery journal verify job --json
  tunery journal export job job.jsonl
  tunery journal export job - | zstd > job.jsonl.zst
  tunery journal import job.jsonl             into a stream that holds nothing yet
  tunery journal import job.jsonl --replace   instead of all that it holds
\b
They read the log of the running stack, or of $TUNERY_KAFKA_BOOTSTRAP.
"""


@click.group("journal", cls=_options.Noun, epilog=EPILOG)
def command() -> None:
    """Journals: the records that everything here is folded from."""


@command.command("tail")
@click.argument("stream", type=click.Choice(STREAMS))
@click.option("--partition", "-p", type=PARTITION, help="Only this one. [all]")
@click.option("--key", "-k", help="Only records of this tenant (or pool).")
@click.option("--void", "with_void", is_flag=True, help="Claims and void records, too.")
@click.option(
    "--lines",
    "-n",
    "lines_max",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="From the end.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on as records are written; Ctrl-C ends it.")
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
    """Show the newest records of STREAM. JSON: one object a line.

    A partition that readers cannot read on ends with the record that stops them.
    """
    from tunery.cli.journal import scan
    from tunery.cli.journal.connection import opened
    from tunery.runtime.bus.partitioner import partition_of

    if key is not None and partition is None:
        partition = partition_of(key.encode())

    async def show() -> None:
        async with opened(folders) as log:
            wanted = scan.Wanted(key, with_void, lines_max, follow)
            async for one in scan.tail(log, stream, scan.those(partition), wanted):
                _say(one, as_json)

    try:
        asyncio.run(show())
    except KeyboardInterrupt:
        return


@command.command("inspect")
@click.argument("stream", type=click.Choice(STREAMS))
@click.argument("partition", type=PARTITION)
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--commands", is_flag=True, help="Of the stream's commands, not of its journal.")
@click.option("--unseal", is_flag=True, help="Show sealed texts, with the keys of this machine.")
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
    """Show one record of STREAM: whether it counts, why not, and all that is in it.

    Exit code 1 when readers stop at it or before it, or when a command cannot be read.
    """
    from tunery.cli.journal import scan
    from tunery.cli.journal.connection import opened
    from tunery.runtime.tools.inspection import mention

    show = scan.opener(folders.keystore) if unseal else mention

    async def look() -> "Looked":
        async with opened(folders) as log:
            at = scan.inspect_command if commands else scan.inspect
            return await at(log, stream, partition, offset, show)

    found = asyncio.run(look())
    if as_json:
        _json(found)
    else:
        _show(found)
    if found.verdict in {"divergent", "unreadable", "unreached", "refused"}:
        raise SystemExit(1)


@command.command("verify")
@click.argument("streams", nargs=-1, type=click.Choice(STREAMS))
@click.option("--partition", "-p", type=PARTITION, help="Only this one. [all]")
@_options.data_dir
@_options.as_json
def verify(
    streams: tuple[str, ...], partition: int | None, folders: DataDir, as_json: bool
) -> None:
    """Walk the hash chain of STREAMS [all] from the first record, and name the first bad one.

    The head is the hash of a partition's last record: equal heads are equal journals. Exit code 1
    when something is wrong.
    """
    from tunery.cli.journal import scan
    from tunery.cli.journal.connection import opened

    async def walk() -> "list[Tally]":
        async with opened(folders) as log:
            return [
                tally
                for stream in streams or STREAMS
                for tally in await scan.verify(log, stream, scan.those(partition))
            ]

    _report(asyncio.run(walk()), as_json)


@command.command("export")
@click.argument("stream", type=click.Choice(STREAMS))
@click.argument("file", type=click.Path(dir_okay=False, writable=True, allow_dash=True))
@click.option("--partition", "-p", type=PARTITION, help="Only this one. [all]")
@_options.data_dir
@_options.as_json
def export(stream: str, file: str, partition: int | None, folders: DataDir, as_json: bool) -> None:
    """Write the records of STREAM as they are now to FILE (JSON lines; `-`: standard output).

    Sealed texts stay sealed: data keys and blobs are no part of a journal. Exit code 1 when a
    partition does not verify; what it holds is in the file all the same.
    """
    from tunery.cli.journal import scan
    from tunery.cli.journal.connection import opened

    async def write() -> "list[Tally]":
        async with opened(folders) as log:
            # a file that is there already is replaced by a whole one only
            with click.open_file(file, "wb", atomic=True) as target:
                return await scan.export(log, stream, scan.those(partition), target)

    _report(asyncio.run(write()), as_json, err=file == "-")


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--replace", is_flag=True, help="Delete what the stream's journal holds now.")
@_options.data_dir
@_options.as_json
def import_journal(file: Path, replace: bool, folders: DataDir, as_json: bool) -> None:
    """Restore the partitions of FILE, an export, each under an operator's claim with a new base.

    Stop the services first (`tunery down`, then `tunery up --no-services`). The file is verified
    before anything is written, and a journal that holds something is left alone unless --replace.
    Import all streams of one moment together: they refer to each other.
    """
    from tunery.cli.journal.connection import opened
    from tunery.cli.journal.restore import Restored, restore

    async def bring_back() -> "list[Restored]":
        async with opened(folders) as log:
            return await restore(log, file, replace=replace)

    found = asyncio.run(bring_back())
    if as_json:
        _json(found)
        return
    for one in found:
        click.echo(
            f"{one.stream}/{one.partition}: {one.records} records; command {one.next_command} is "
            f"next, in incarnation {one.incarnation}"
        )


# --- how it looks -----------------------------------------------------------------------------


def _json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value))


def _say(one: "Looked", as_json: bool) -> None:
    from tunery.cli.journal.render import line

    if as_json:
        _json(one)
    else:
        line(one)


def _show(one: "Looked") -> None:
    from tunery.cli.journal.render import record

    record(one)


def _report(tallies: "Iterable[Tally]", as_json: bool, err: bool = False) -> None:
    """A table, or one JSON object; exit code 1 when a partition is bad."""
    from tunery.cli.journal.render import table

    found = list(tallies)
    sound = all(tally.bad is None for tally in found)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"sound": sound, "partitions": found}), err=err)
    else:
        table(found, err=err)
    if not sound:
        raise SystemExit(1)
