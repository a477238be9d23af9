"""Reads journals from their first record, because only then is it known which records count."""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final, get_args

import click

from schemas.sealed import Sealed, SealedField
from schemas.streams import PARTITIONS, Stream, Topic
from schemas.topics import STREAMS
from schemas.units import Ms
from tunery.local.errors import LocalError
from tunery.platform.seal.abstract import SealError
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.bus.abstract import Log, Record
from tunery.runtime.bus.reading import record_at
from tunery.runtime.tools.archive import ArchiveWriter
from tunery.runtime.tools.inspection import (
    Inspector,
    PartitionReport,
    PartitionScan,
    RecordReport,
    Verdict,
    look_at_command,
)

POLL_MS: Final[Ms] = 500
RECORDS_MAX: Final = 2_000
PROGRESS_EVERY_S: Final = 2.0
STOPS: Final = frozenset({"divergent", "unreadable"})


def partitions_of(partition: int | None) -> tuple[int, ...]:
    return tuple(range(PARTITIONS)) if partition is None else (partition,)


@dataclass(frozen=True)
class TailOptions:
    key: str | None  # only records of this key; None: all
    with_void: bool  # include claims and void records
    lines_max: int  # number of existing records to print
    follow: bool  # continue with new records

    def selects(self, record: Record, verdict: Verdict) -> bool:
        """True if the record is printed; a record that stops readers always is."""
        if verdict in STOPS:
            return True
        if self.key is not None and record.key != self.key.encode():
            return False
        return verdict == "accepted" or self.with_void


class _Progress:
    """Prints the progress of a long scan to stderr every PROGRESS_EVERY_S seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._printed_at = time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._printed_at > PROGRESS_EVERY_S:
            self._printed_at = time.monotonic()
            click.echo(f"{self._what}: {self._done} of {self._total} records", err=True)


async def bounds_of(
    log: Log, stream: Stream, partitions: Iterable[int]
) -> dict[int, tuple[int, int]]:
    return {number: await log.bounds(stream.journal.name, number) for number in partitions}


async def records_of(
    log: Log, stream: Stream, bounds: dict[int, tuple[int, int]]
) -> AsyncIterator[list[Record]]:
    """All records within the bounds, in order within a partition. Raises BusError."""
    async for records in topic_records(log, stream.journal.name, stream.name, bounds):
        yield records


async def topic_records(
    log: Log, topic: str, what: str, bounds: Mapping[int, tuple[int, int]]
) -> AsyncIterator[list[Record]]:
    """All records of a topic within the bounds, in order within a partition. Raises BusError.

    what: name of the topic in the lines of progress.
    """
    left = {number: end - start for number, (start, end) in bounds.items() if end > start}
    progress = _Progress(what, sum(left.values()))
    starts = {number: bounds[number][0] for number in left}
    reader = await log.reader(topic, starts)
    try:
        while any(left.values()):
            polled = await reader.poll(POLL_MS, RECORDS_MAX)
            within = [record for record in polled if record.offset < bounds[record.partition][1]]
            for record in within:
                left[record.partition] -= 1
            progress.add(len(within))
            yield within
    finally:
        await reader.close()


async def verify(log: Log, name: str, partitions: Sequence[int]) -> list[PartitionReport]:
    stream = STREAMS[name]
    return await walk(log, stream, await bounds_of(log, stream, partitions), lambda _: None)


async def export(
    log: Log, name: str, partitions: Sequence[int], file: IO[bytes]
) -> list[PartitionReport]:
    """Write the records that exist now into `file`, and verify them on the way."""
    stream = STREAMS[name]
    bounds = await bounds_of(log, stream, partitions)
    archive = ArchiveWriter(file, name, bounds)
    tallies = await walk(log, stream, bounds, archive.add)
    archive.end()
    return tallies


async def walk(
    log: Log,
    stream: Stream,
    bounds: dict[int, tuple[int, int]],
    take: Callable[[list[Record]], None],
) -> list[PartitionReport]:
    """Verify the records within the bounds, and pass all of them to `take`."""
    walks = {number: PartitionScan(stream, number) for number in bounds}
    async for records in records_of(log, stream, bounds):
        take(records)
        for number, group in groupby(records, key=lambda record: record.partition):
            walks[number].take(group)
    return [walk.tally for walk in walks.values()]


def unsealer(keystore: Path, roots: Path) -> Callable[[Sealed], str]:
    """Return a function that decrypts sealed text with the keys in these folders."""
    sealer = Sealer(DirectoryKeyStore(keystore, Roots(roots)))

    def show(sealed: Sealed) -> str:
        try:
            return sealer.open(sealed, *get_args(SealedField))
        except SealError as error:
            return f"[{error}]"

    return show


async def inspect_command(
    log: Log, name: str, partition: int, offset: int, show: Callable[[Sealed], Any]
) -> RecordReport:
    """Read one command. Raises LocalError when it does not exist, or was trimmed."""
    stream = STREAMS[name]
    await start_of(log, stream.commands, partition, offset)
    record = await record_at(log, stream.commands.name, partition, offset)
    return look_at_command(stream, record, show)


async def start_of(log: Log, topic: Topic, partition: int, offset: int) -> int:
    """Return the first offset that is kept. Raises LocalError when `offset` has no record."""
    start, end = await log.bounds(topic.name, partition)
    if not start <= offset < end:
        holds = f"it holds [{start}, {end})" if end > start else "it is empty"
        raise LocalError(
            f"{topic.name}/{partition} has no record at offset {offset}",
            f"choose another offset: {holds}",
        )
    return start


async def inspect(
    log: Log, name: str, partition: int, offset: int, show: Callable[[Sealed], Any]
) -> RecordReport:
    """Read one record, judged as readers judge it. Raises LocalError when it does not exist."""
    stream = STREAMS[name]
    start = await start_of(log, stream.journal, partition, offset)
    inspector = Inspector(stream, show)
    async for records in records_of(log, stream, {partition: (start, offset + 1)}):
        for record in records:
            if record.offset == offset:
                return inspector.look(record)
            inspector.judge(record)
    raise LocalError(f"{name}/{partition} now ends before offset {offset}", "run the command again")


async def tail(
    log: Log, name: str, partitions: Sequence[int], options: TailOptions
) -> AsyncIterator[RecordReport]:
    """Yield the newest selected records by time; then new ones, with `follow`."""
    stream = STREAMS[name]
    inspectors = {number: Inspector(stream) for number in partitions}
    bounds = await bounds_of(log, stream, partitions)

    def judge_records(records: Sequence[Record]) -> Iterator[tuple[Record, Verdict, str]]:
        for record in records:
            verdict, why = inspectors[record.partition].judge(record)
            if options.selects(record, verdict):
                yield record, verdict, why

    newest: deque[tuple[Record, Verdict, str]] = deque(maxlen=options.lines_max)
    async for records in records_of(log, stream, bounds):
        newest.extend(judge_records(records))
    for judgement in sorted(newest, key=lambda judgement: judgement[0].timestamp):
        yield inspectors[judgement[0].partition].describe(*judgement)
    if not options.follow:
        return
    ends = {number: end for number, (_, end) in bounds.items()}
    reader = await log.reader(stream.journal.name, ends)
    try:
        while True:
            for judgement in judge_records(await reader.poll(POLL_MS, RECORDS_MAX)):
                yield inspectors[judgement[0].partition].describe(*judgement)
    finally:
        await reader.close()
