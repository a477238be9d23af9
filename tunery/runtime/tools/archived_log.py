"""The log whose journals begin at their first record, though Kafka keeps the newer ones alone.

Older records are in an archive: segments, objects whose names say what is in them. All readers of
journals read through this log, and nothing else knows of archives but who makes them.
"""

import gzip
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import IO, Final, NamedTuple, cast

from schemas.streams import Topic
from schemas.units import Ms
from tunery.runtime.blobs.abstract import (
    BlobCorrupt,
    BlobMissing,
    BlobsUnavailable,
    ListedBlobs,
)
from tunery.runtime.bus.abstract import (
    Appended,
    ArchiveAway,
    ArchiveDamaged,
    Commit,
    OperatedLog,
    OutOfRange,
    Reader,
    Record,
    Writer,
)
from tunery.runtime.bus.reading import record_at
from tunery.runtime.journal.acceptance import INITIAL, Acceptance
from tunery.runtime.tools.archive import ArchiveError, ArchiveReader

SUFFIX: Final = ".jsonl.gz"
HEAD_CHARS: Final = 32  # of a hash of the chain, in names
COPY_BACK: Final = (
    "copy it back from a version or a copy of the bucket; without one, `tunery restore` makes an "
    "installation of a backup, which has these records, too"
)


class ArchivedSegment(NamedTuple):
    """Records of one partition, as the name of their object has them."""

    stream: str
    partition: int
    first: int  # offset
    after: int  # offset behind the last
    before: str  # head of the hash chain before the first record
    head: str  # head of the hash chain behind the last record
    sha256: str

    @property
    def key(self) -> str:
        name = f"{self.first:015}-{self.after:015}-{self.before}-{self.head}-{self.sha256}"
        return f"{self.stream}/{self.partition}/{name}{SUFFIX}"


def head_of(acceptance: Acceptance) -> str:
    return acceptance.prev.hex()[:HEAD_CHARS]


def _segment(key: str) -> ArchivedSegment | None:
    """The segment of an object's name; None for other objects."""
    try:
        stream, partition, name = key.removesuffix(SUFFIX).split("/")
        first, after, before, head, sha256 = name.split("-")
        segment = ArchivedSegment(
            stream, int(partition), int(first), int(after), before, head, sha256
        )
    except ValueError:
        return None
    return segment if segment.key == key and segment.first < segment.after else None


class Archive:
    """Segments in object storage. Raises ArchiveAway, and ArchiveDamaged, which names an object."""

    def __init__(self, connect: Callable[[], ListedBlobs]) -> None:
        self._connect = connect
        self._blobs: ListedBlobs | None = None  # few processes ever need it
        self._listed: dict[tuple[str, int], list[ArchivedSegment]] = {}

    @property
    def blobs(self) -> ListedBlobs:
        if self._blobs is None:
            self._blobs = self._connect()
        return self._blobs

    async def close(self) -> None:
        if self._blobs is not None:
            await self._blobs.close()

    async def covering(
        self, stream: str, partition: int, offset: int, behind: ArchivedSegment | None = None
    ) -> ArchivedSegment | None:
        """The segment with the record at an offset, the longest of several; None: there is none.

        behind: segment whose records end before this offset
        """
        key = stream, partition
        for _ in range(2):
            covered = [
                each for each in self._listed.get(key, ()) if each.first <= offset < each.after
            ]
            # Of those that begin here, one that goes on from the last record is the right one.
            before = behind.head if behind else head_of(INITIAL)
            if chained := [
                each for each in covered if each.first == offset and each.before == before
            ]:
                return max(chained, key=lambda each: each.after)
            if covered:
                return max(covered, key=lambda each: each.after)
            await self._list(stream, partition)
        return None

    async def records(self, at: OutOfRange, segment: ArchivedSegment) -> AsyncGenerator[Record]:
        """The records of a segment, decoded as they are asked for."""
        reading = await self.open(at, segment)
        try:
            for record in reading.records():
                yield record
        except (ArchiveError, OSError, EOFError) as error:
            raise self.damaged(at, segment, str(error)) from error

    async def open(self, at: OutOfRange, segment: ArchivedSegment) -> ArchiveReader:
        """Fetch a segment, with its head read. Raises ArchiveAway, ArchiveDamaged."""
        try:
            body = await self.blobs.get(segment.key, sha256=segment.sha256)
        except BlobsUnavailable as error:
            raise ArchiveAway(f"the archive cannot be read: {error}") from error
        except BlobMissing as error:
            self._listed.clear()
            raise self.damaged(at, segment, "it is missing") from error
        except BlobCorrupt as error:
            raise self.damaged(at, segment, "it was changed: its SHA-256 is another") from error
        try:
            reading = ArchiveReader(cast("IO[bytes]", gzip.GzipFile(fileobj=io.BytesIO(body))))
        except (ArchiveError, OSError, EOFError) as error:
            raise self.damaged(at, segment, str(error)) from error
        bounds = {segment.partition: (segment.first, segment.after)}
        if (reading.stream, reading.partitions) != (segment.stream, bounds):
            raise self.damaged(at, segment, "it has other records than its name says")
        return reading

    async def _list(self, stream: str, partition: int) -> None:
        try:
            self._listed[stream, partition] = [
                segment
                async for each in self.blobs.listed(f"{stream}/{partition}/")
                if (segment := _segment(each.key)) is not None
            ]
        except BlobsUnavailable as error:
            raise ArchiveAway(f"the archive cannot be listed: {error}") from error

    def damaged(self, at: OutOfRange, segment: ArchivedSegment, why: str) -> ArchiveDamaged:
        return ArchiveDamaged(at, f"archive:{segment.key}: {why}", COPY_BACK)

    def foreign(self, at: OutOfRange, segment: ArchivedSegment, offset: int) -> ArchiveDamaged:
        return ArchiveDamaged(
            at,
            f"archive:{segment.key}: Kafka has another record at offset {offset}, so the segment "
            "is of another installation, or of a journal that was replaced since",
            "move the objects of another journal out of the bucket, and those of this one into it",
        )

    async def following(
        self, at: OutOfRange, stream: str, offset: int, behind: ArchivedSegment | None
    ) -> ArchivedSegment:
        """The segment with the record at an offset, which goes on from the one behind it."""
        segment = await self.covering(stream, at.partition, offset, behind)
        after = f"archive:{behind.key}" if behind else "the start of the journal"
        if segment is None:
            later = [
                each.first for each in self._listed[stream, at.partition] if each.first > offset
            ]
            why = (
                f"archive:{stream}/{at.partition}/ lacks the segment with the records "
                f"[{offset}, {min([at.start, *later])}), behind {after}; Kafka begins at {at.start}"
            )
            raise ArchiveDamaged(at, why, COPY_BACK)
        head = behind.head if behind else head_of(INITIAL) if offset == 0 else None
        if segment.first == offset and head not in (None, segment.before):
            raise self.damaged(
                at,
                segment,
                f"it does not go on from {after}: one is of another installation or journal",
            )
        return segment


class ArchivedLog:
    """Implements `OperatedLog` above another one, which it closes.

    streams: names of the streams, by the topics of their journals
    """

    def __init__(self, log: OperatedLog, archive: Archive, streams: Mapping[str, str]) -> None:
        self.kept, self.archive, self._streams = log, archive, streams

    @property
    def session_timeout_ms(self) -> Ms:
        return self.kept.session_timeout_ms

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Journals begin at 0: a reader of what is nowhere is told which object is missing."""
        start, end = await self.kept.bounds(topic, partition)
        return (0 if topic in self._streams else start), end

    async def reader(self, topic: str, positions: Mapping[int, int]) -> Reader:
        reader = await self.kept.reader(topic, positions)
        if (stream := self._streams.get(topic)) is None:
            return reader
        return _ArchivedReader(self, stream, topic, positions, reader)

    async def close(self) -> None:
        await self.archive.close()
        await self.kept.close()

    # --- as it is ---------------------------------------------------------------------------------

    async def create(self, topics: Sequence[Topic], partitions: int) -> None:
        await self.kept.create(topics, partitions)

    async def writer(self, topic: str, partition: int) -> Writer:
        return await self.kept.writer(topic, partition)

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Appended:
        return await self.kept.send(topic, key, value, partition)

    async def send_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        await self.kept.send_all(topic, partition, records)

    async def ends(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        return await self.kept.ends(topic, partitions)

    async def trim(self, topic: str, partition: int, before: int) -> None:
        await self.kept.trim(topic, partition, before)

    async def committed(self, group: str, topic: str) -> Mapping[int, Commit]:
        return await self.kept.committed(group, topic)

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        await self.kept.commit(group, topic, commits)

    def membership(
        self, group: str, topic: str
    ) -> AbstractAsyncContextManager[AsyncIterator[frozenset[int]]]:
        return self.kept.membership(group, topic)

    async def members(self, group: str) -> int:
        return await self.kept.members(group)

    async def recreate(self, topic: Topic, partitions: int) -> None:
        await self.kept.recreate(topic, partitions)


class _ArchivedReader:
    """Implements `Reader`: partitions that Kafka does not have any more come from the archive."""

    def __init__(
        self,
        log: ArchivedLog,
        stream: str,
        topic: str,
        positions: Mapping[int, int],
        reader: Reader,
    ) -> None:
        self._log, self._stream, self._topic = log, stream, topic
        self._positions = dict(positions)
        self._reader: Reader | None = reader  # of Kafka; None while one partition is behind it
        self._behind: tuple[int, AsyncGenerator[list[Record]]] | None = None
        self._records_max = 0

    async def poll(self, wait_ms: Ms, records_max: int) -> Sequence[Record]:
        """Raises OutOfRange, ArchiveDamaged, Unavailable."""
        self._records_max = records_max
        if self._behind is not None:
            return await self._older()
        if self._reader is None:
            self._reader = await self._log.kept.reader(self._topic, self._positions)
        try:
            records = await self._reader.poll(wait_ms, records_max)
        except OutOfRange as error:
            if self._positions[error.partition] >= error.start:
                raise
            await self.close()
            self._behind = error.partition, self._archived(error)
            return await self._older()
        for record in records:
            self._positions[record.partition] = record.offset + 1
        return records

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
            self._reader = None
        if self._behind is not None:
            await self._behind[1].aclose()
            self._behind = None

    async def _older(self) -> Sequence[Record]:
        if self._behind is None:
            return ()
        partition, batches = self._behind
        try:
            records: list[Record] = await anext(batches, [])
        except BaseException:
            self._behind = None  # where it is read again, it begins at the position
            raise
        if records:
            self._positions[partition] = records[-1].offset + 1
        else:
            self._behind = None
        return records

    async def _archived(self, at: OutOfRange) -> AsyncGenerator[list[Record]]:
        """Batches from the position on, up to what Kafka has."""
        archive, position = self._log.archive, self._positions[at.partition]
        segments: list[ArchivedSegment] = []
        following = position
        while following < at.start:
            behind = segments[-1] if segments else None
            segments.append(await archive.following(at, self._stream, following, behind))
            following = segments[-1].after
        await self._check(at, segments[-1])
        for segment in segments:
            batch: list[Record] = []
            async for record in archive.records(at, segment):
                if record.offset >= position:
                    batch.append(record)
                if len(batch) >= self._records_max:
                    yield batch
                    batch = []
            if batch:
                yield batch
            position = segment.after

    async def _check(self, at: OutOfRange, newest: ArchivedSegment) -> None:
        """Compare the first record of Kafka with the same one of the archive, before anything of
        the archive is believed. Raises ArchiveDamaged.
        """
        async for record in self._log.archive.records(at, newest):
            if record.offset < at.start:
                continue
            try:
                kept = await record_at(self._log.kept, self._topic, at.partition, at.start)
            except OutOfRange:
                return  # Kafka begins later meanwhile: what follows is compared then
            if kept != record:
                raise self._log.archive.foreign(at, newest, record.offset)
            return
