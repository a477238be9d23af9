"""Imports exported journals: the same bytes at the same offsets, then an operator's claim.

Entries name the offset of their owner's claim as their epoch, so they count only where they were.
The claim at the end begins a new incarnation, and its base says which command is at physical
offset 0 of the commands topic that is there now.
"""

import os
import socket
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from schemas.envelope import Claim
from schemas.streams import PARTITIONS, Stream
from schemas.topics import STREAMS, TOPICS
from tunery.local.errors import LocalError
from tunery.runtime.bus.abstract import Appended, Commit, OperatedLog, Record, Writer
from tunery.runtime.bus.reading import record_at
from tunery.runtime.hosts.reactor import positions_of
from tunery.runtime.ids import new_id
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.decision import read_command
from tunery.runtime.journal.reader import START
from tunery.runtime.tools.archive import ArchiveError, ArchiveReader
from tunery.runtime.tools.inspection import PartitionReport, PartitionScan, missing_causes

WINDOW: Final = 256  # records in flight
SAY_EVERY: Final = 50_000  # records
STOP: Final = "stop the services first: `tunery down`, then `tunery up --no-services`"


class Restored(Struct, frozen=True, kw_only=True):
    """Result of restoring one partition."""

    stream: str
    partition: int
    records: int  # number of records written
    next_command: int  # number of the next command
    base: int  # number of the command at offset 0 of the commands topic, as the claim records it
    incarnation: int  # offset of the operator's claim


async def restore(log: OperatedLog, files: Sequence[Path], *, replace: bool) -> list[Restored]:
    """Restore every partition in the files. Nothing is written unless all of it is sound.

    Raises LocalError: what is wrong with a file, or with a journal that is there.
    """
    exports = [(file, *_verify_file(file)) for file in files]
    tallies = [tally for _, _, partitions in exports for tally in partitions.values()]
    if missing := next(missing_causes(tallies), None):
        raise LocalError(
            f"these exports are of different moments: {missing}",
            "stop the services, and export all streams again",
        )
    await log.create(TOPICS, PARTITIONS)
    for _, stream, partitions in exports:
        await _refuse_present(log, stream, partitions, replace=replace)
    restored = []
    for file, stream, partitions in exports:
        await append_records(log, stream.journal.name, stream.name, _records(file))
        restored += [await claim_restored(log, stream, tally) for tally in partitions.values()]
    return restored


async def _refuse_present(
    log: OperatedLog, stream: Stream, tallies: dict[int, PartitionReport], *, replace: bool
) -> None:
    """Raises LocalError where an owner runs, or records are there that may not be deleted."""
    if await log.members(f"tunery.{stream.name}.owner"):
        raise LocalError(f"the owner of {stream.name} is running", STOP)
    if replace:
        await _empty(log, stream, tallies)
    for partition in tallies:
        start, end = await log.bounds(stream.journal.name, partition)
        if end > 0:
            raise LocalError(
                f"{stream.name}/{partition} holds the records [{start}, {end})",
                "restore into an empty data directory, or delete what is there with --replace",
            )


def _verify_file(file: Path) -> tuple[Stream, dict[int, PartitionReport]]:
    """Verify an archive by the rules that readers of the journal apply.

    Returns its stream and a report for each partition. Raises LocalError for a damaged archive.
    """
    try:
        with file.open("rb") as source:
            reading = ArchiveReader(source)
            stream = STREAMS.get(reading.stream)
            if stream is None:
                raise ArchiveError(f"{reading.stream!r} is no stream of this version")
            walks = {
                partition: PartitionScan(stream, partition) for partition in reading.partitions
            }
            for partition, records in groupby(
                reading.records(), key=lambda record: record.partition
            ):
                walks[partition].take(records)
    except ArchiveError as error:
        raise LocalError(f"{file}: {error}", "export the journal again") from error
    tallies = {partition: walk.tally for partition, walk in sorted(walks.items())}
    for tally in tallies.values():
        if tally.bad is not None:
            where = f"{file}: {tally.stream}/{tally.partition} at offset {tally.bad.offset}"
            raise LocalError(f"{where}: {tally.bad.why}", "take an export from before that record")
    return stream, tallies


async def _empty(log: OperatedLog, stream: Stream, tallies: dict[int, PartitionReport]) -> None:
    """Delete all records of the stream; so the file must hold all partitions.

    Reactions begin again at offset 0.
    """
    if len(tallies) < PARTITIONS:
        raise LocalError(
            f"the file holds {len(tallies)} of {PARTITIONS} partitions, --replace deletes them all",
            "export the whole stream, without --partition",
        )
    await log.recreate(stream.journal, PARTITIONS)
    again = {partition: Commit(START.offset, START.dump()) for partition in range(PARTITIONS)}
    for reader in stream.readers:
        await log.commit(positions_of(reader, stream), stream.journal.name, again)


async def append_records(
    log: OperatedLog, topic: str, what: str, records: Iterable[Record]
) -> None:
    """Append records, each of which has to come to the offset that it had.

    what: name of the topic in the lines of progress. Raises LocalError, BusError.
    """
    writers: dict[int, Writer] = {}
    flights: deque[tuple[Record, Awaitable[Appended]]] = deque()
    try:
        for count, record in enumerate(records):
            number = record.partition
            if number not in writers:
                writers[number] = await log.writer(topic, number)
            if len(flights) == WINDOW:
                await _await_offset(what, *flights.popleft())
            flights.append((record, await writers[number].submit(record.key, record.value)))
            if count and count % SAY_EVERY == 0:
                click.echo(f"{what}: {count} records restored", err=True)
        while flights:
            await _await_offset(what, *flights.popleft())
    finally:
        for writer in writers.values():
            await writer.close()


def _records(file: Path) -> Iterator[Record]:
    with file.open("rb") as source:
        yield from ArchiveReader(source).records()


async def _await_offset(what: str, record: Record, pending: Awaitable[Appended]) -> None:
    """At any other offset than its own a record would not count."""
    offset = (await pending).offset
    if offset != record.offset:
        partition = f"{what}/{record.partition}"
        raise LocalError(
            f"another process writes to {partition} (offset {offset})", f"{STOP}; use --replace"
        )


async def claim_restored(
    log: OperatedLog, stream: Stream, tally: PartitionReport, nonce: str = ""
) -> Restored:
    """Append an operator's claim behind the restored records of a partition. Raises BusError."""
    base = await _base(log, stream, tally)
    owner = f"operator@{socket.gethostname()}:{os.getpid()}"
    claim = Claim(owner=owner, nonce=nonce or new_id(), base=base)
    writer = await log.writer(stream.journal.name, tally.partition)
    try:
        appended = await writer.append(b"", encode(claim))
    finally:
        await writer.close()
    return Restored(
        stream=stream.name,
        partition=tally.partition,
        records=tally.records,
        next_command=tally.cause + 1,
        base=base,
        incarnation=appended.offset,
    )


async def _base(log: OperatedLog, stream: Stream, tally: PartitionReport) -> int:
    """Return the number of the command at offset 0 of the commands topic.

    If the topic holds the last command that the journal decided, it is the journal's original topic
    and its numbers stay. Otherwise it is a new topic, of which no command was decided.
    """
    topic, last = stream.commands.name, tally.cause - tally.base
    start, end = await log.bounds(topic, tally.partition)
    if start <= last < end:
        record = await record_at(log, topic, tally.partition, last)
        if read_command(stream, record, tally.cause).id == tally.command_id:
            return tally.base
    return tally.cause + 1 - start
