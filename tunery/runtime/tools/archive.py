"""Journals as files: what an export writes, an import restores and recorded histories are.

JSON lines: a head, each record with its very bytes, and an end that counts them, so that a file
that was cut off is known for it. A record that is one line of JSON stands in the file as it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Final, TypeAlias

import msgspec
from msgspec import Struct

from schemas.units import Ms
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.journal.reader import Position

FORMAT: Final = 1
LINE_BYTES_MAX: Final = 4_000_000  # a record in base64, and some overhead
NO_JSON: Final = msgspec.Raw()


class ArchiveError(Exception):
    """The file is no export, or not a whole one; the message names its line."""


class ArchiveHead(Struct, frozen=True, kw_only=True, tag="head", tag_field="line"):
    """First line of an archive."""

    format: int
    stream: str
    partitions: dict[int, tuple[int, int]]  # number → (first offset, offset after the last)


class ArchivedRecord(
    Struct, frozen=True, kw_only=True, tag="record", tag_field="line", omit_defaults=True
):
    """One record. Its value is in `value` where that is JSON, else in `base64`."""

    partition: int
    offset: int
    timestamp: Ms
    key: bytes = b""
    value: msgspec.Raw = NO_JSON
    base64: bytes = b""


class ArchiveEnd(
    Struct, frozen=True, kw_only=True, tag="end", tag_field="line", omit_defaults=True
):
    """Last line of an archive."""

    records: int
    #: of a segment: where readers go on behind it, with the head of the hash chain
    position: Position | None = None


ArchiveLine: TypeAlias = ArchiveHead | ArchivedRecord | ArchiveEnd
_LINE: Final[msgspec.json.Decoder[ArchiveLine]] = msgspec.json.Decoder(ArchiveLine)
_ENCODE: Final = msgspec.json.Encoder().encode


def write(
    file: IO[bytes],
    stream: str,
    bounds: Mapping[int, tuple[int, int]],
    records: Iterable[Record],
) -> None:
    """Records of one partition come in the order of their offsets."""
    archive = ArchiveWriter(file, stream, bounds)
    archive.add(records)
    archive.end()


class ArchiveWriter:
    """A file that is being written: `add` as often as needed, then `end`."""

    def __init__(self, file: IO[bytes], stream: str, bounds: Mapping[int, tuple[int, int]]) -> None:
        self._file, self._records = file, 0
        self._put(ArchiveHead(format=FORMAT, stream=stream, partitions=dict(bounds)))

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self._file.write(_line(record) + b"\n")
            self._records += 1

    def end(self, position: Position | None = None) -> None:
        self._put(ArchiveEnd(records=self._records, position=position))

    def _put(self, line: ArchiveLine) -> None:
        self._file.write(_ENCODE(line) + b"\n")


def _line(record: Record) -> bytes:
    partition, offset, timestamp, key, value = record
    plain = msgspec.Raw(value)
    kept = ArchivedRecord(
        partition=partition, offset=offset, timestamp=timestamp, key=key, value=plain
    )
    line = _ENCODE(kept)
    if b"\n" not in value and _value(line) == value:
        return line
    return _ENCODE(msgspec.structs.replace(kept, value=NO_JSON, base64=value))


def _value(line: bytes) -> bytes | None:
    """The value as JSON text; None when it is not one line of JSON in UTF-8."""
    try:
        line.decode()
        read = _LINE.decode(line)
    except MALFORMED:
        return None
    return bytes(read.value) if isinstance(read, ArchivedRecord) else None


class ArchiveReader:
    """A file that is being read: its head at once, its records as they are asked for.

    Raises ArchiveError, here and while records are read: for a line that is none of ours, for
    gaps, and for a file without its end.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._lines = _lines(file)
        number, head = next(self._lines, (1, None))
        if not isinstance(head, ArchiveHead) or head.format != FORMAT:
            raise _wrong(number, f"this is not the head of a journal in format {FORMAT}")
        self.stream, self.partitions = head.stream, head.partitions
        self.position: Position | None = None  # of the end, once it is read

    def records(self) -> Iterator[Record]:
        """All of them, checked against the head."""
        following = {partition: start for partition, (start, _) in self.partitions.items()}
        count = 0
        for number, line in self._lines:
            match line:
                case ArchivedRecord():
                    if following.get(line.partition) != line.offset:
                        record = f"partition {line.partition} at offset {line.offset}"
                        raise _wrong(number, f"{record} is not the next record of its partition")
                    following[line.partition] += 1
                    count += 1
                    value = bytes(line.value) or line.base64
                    yield Record(line.partition, line.offset, line.timestamp, line.key, value)
                case ArchiveEnd(records=records, position=position):
                    ends = {partition: end for partition, (_, end) in self.partitions.items()}
                    if records != count or following != ends or next(self._lines, None):
                        raise _wrong(number, "the records before it are not those of the head")
                    self.position = position
                    return
                case ArchiveHead():
                    raise _wrong(number, "a second head")
        raise ArchiveError("the file has no end: it was cut off; export it again")


def _lines(file: IO[bytes]) -> Iterator[tuple[int, ArchiveLine]]:
    number = 0
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        try:
            yield number, _LINE.decode(line)
        except MALFORMED as error:
            raise _wrong(number, str(error)) from error


def _wrong(number: int, why: str) -> ArchiveError:
    return ArchiveError(f"line {number}: {why}")
