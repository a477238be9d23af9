"""Moves old records of journals from Kafka to the archive: `tunery journal archive`.

A segment is uploaded, read back and compared with Kafka record by record; only then Kafka deletes
these records, all but the last one, by which readers see that the archive is of this journal. So a
process that is killed anywhere loses nothing, and the next one goes on.
"""

import gzip
import io
from collections.abc import Sequence
from hashlib import sha256
from typing import IO, Final, cast

from msgspec import Struct

from schemas.streams import Stream
from schemas.units import Ms
from tunery.runtime.bus.abstract import OutOfRange, Record
from tunery.runtime.bus.reading import records_now
from tunery.runtime.journal.reader import START, Position
from tunery.runtime.journal.snapshots import SLOTS, read_pointers
from tunery.runtime.tools.archive import ArchiveError, ArchiveWriter
from tunery.runtime.tools.archived_log import ArchivedLog, ArchivedSegment, head_of
from tunery.runtime.tools.inspection import PartitionScan

SEGMENT_RECORDS_MAX: Final = 20_000
SEGMENT_BYTES_MAX: Final = 32_000_000  # of values: a reader has one segment in memory
COMPRESSION: Final = 6


class ArchiveReport(Struct, kw_only=True):
    """What was done to one partition."""

    stream: str
    partition: int
    start: int  # first offset that Kafka had before
    end: int  # offset that the next record gets
    #: what was, or would be, uploaded, in how many objects, and bytes of these
    records: int = 0
    segments: int = 0
    bytes: int = 0
    kept: int = 0  # first offset that Kafka has now
    why: str = ""  # why no more was archived


class NotArchived(Exception):
    """The journal does not verify, so nothing of it is moved."""


async def archive(
    log: ArchivedLog, stream: Stream, partition: int, before_ms: Ms, *, dry_run: bool = False
) -> ArchiveReport:
    """Archive the records of a partition that are older than a time and behind all snapshots.

    Raises NotArchived, ArchiveDamaged, Unavailable, BlobError.
    """
    topic = stream.journal.name
    start, end = await log.kept.bounds(topic, partition)
    report = ArchiveReport(
        stream=stream.name, partition=partition, start=start, end=end, kept=start
    )
    offsets = [each.offset for each in (await read_pointers(log, stream, partition)).values()]
    if len(offsets) < SLOTS:
        report.why = f"its owner has {len(offsets)} of {SLOTS} snapshots"
        return report
    limit = min(*offsets, end)
    report.why = f"its older snapshot is of offset {limit}"
    whole = OutOfRange(topic, partition, start, start, end)
    at, behind = 0, None
    while at <= start and start > 0:  # nothing more is deleted where older records are missing
        behind = await log.archive.following(whole, stream.name, at, behind)
        at = behind.after
    at, position, is_verified = start, START, False
    while at < limit:
        segment = await log.archive.covering(stream.name, partition, at)
        if segment is None:
            if not is_verified:
                await _verify(log, stream, partition, position, end)
                is_verified = True
            records = await _old(log, topic, partition, (at, limit), before_ms)
            if not records:
                report.why = "what follows is newer"
                break
            report.records += len(records)
            if dry_run:
                at = records[-1].offset + 1
                continue
            segment, body = _packed(stream, partition, position, records)
            await log.archive.blobs.put(segment.key, body, sha256=segment.sha256)
            report.segments, report.bytes = report.segments + 1, report.bytes + len(body)
        position = await _compare(log, topic, segment, whole)
        at = segment.after
        if not dry_run and (kept := min(at, limit) - 1) > report.kept:
            await log.kept.trim(topic, partition, kept)
            report.kept = kept
    return report


async def _old(
    log: ArchivedLog, topic: str, partition: int, bounds: tuple[int, int], before_ms: Ms
) -> list[Record]:
    """The first records within the bounds that are older, as many as a segment has."""
    old: list[Record] = []
    size = 0
    async for record in records_now(log.kept, topic, partition, bounds):
        size += len(record.value)
        if record.timestamp >= before_ms or size > SEGMENT_BYTES_MAX:
            break
        old.append(record)
        if len(old) == SEGMENT_RECORDS_MAX:
            break
    return old


async def _verify(
    log: ArchivedLog, stream: Stream, partition: int, position: Position, end: int
) -> None:
    """Verify what Kafka has from a position on. Raises NotArchived."""
    scan, topic = PartitionScan(stream, partition, position), stream.journal.name
    async for record in records_now(log.kept, topic, partition, (position.offset, end)):
        scan.take((record,))
        if (bad := scan.tally.bad) is not None:
            raise NotArchived(f"{scan.tally.name} at offset {bad.offset}: {bad.why}")


def _packed(
    stream: Stream, partition: int, position: Position, records: Sequence[Record]
) -> tuple[ArchivedSegment, bytes]:
    """A segment and its bytes; the same ones for the same records."""
    scan = PartitionScan(stream, partition, position)
    scan.take(records)
    bounds = position.offset, scan.position.offset
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=COMPRESSION, mtime=0) as file:
        writer = ArchiveWriter(cast("IO[bytes]", file), stream.name, {partition: bounds})
        writer.add(records)
        writer.end(scan.position)
    heads = head_of(position.acceptance), head_of(scan.position.acceptance)
    body = packed.getvalue()
    return ArchivedSegment(stream.name, partition, *bounds, *heads, sha256(body).hexdigest()), body


async def _compare(
    log: ArchivedLog, topic: str, segment: ArchivedSegment, whole: OutOfRange
) -> Position:
    """Read a segment back and compare it with what Kafka has of it; return where it ends.

    Raises ArchiveDamaged, Unavailable.
    """
    reading = await log.archive.open(whole, segment)
    bounds = max(segment.first, whole.start), min(segment.after, whole.end)
    kept = records_now(log.kept, topic, segment.partition, bounds)
    try:
        for record in reading.records():
            if record.offset >= bounds[0] and await anext(kept, None) != record:
                raise log.archive.foreign(whole, segment, record.offset)
    except (ArchiveError, OSError, EOFError) as error:
        raise log.archive.damaged(whole, segment, str(error)) from error
    finally:
        await kept.aclose()
    if reading.position is None:
        raise log.archive.damaged(whole, segment, "it has no position at its end")
    return reading.position
