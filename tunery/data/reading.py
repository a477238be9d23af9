"""A file, row by row, in bounded memory. Its content tells the format, never its name.

Lines end at \\n only: U+2028, U+2029 and U+0085 inside strings are text. A byte order mark and
\\r\\n are fine.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias

import msgspec
from typing_extensions import Buffer

from tunery.data import delimited
from tunery.data.findings import Finding, Note, excerpt
from tunery.data.limits import MIB, ROW_BYTES_MAX, ROWS_MAX, SNIFF_BYTES
from tunery.data.lines import BLANK, BOM, skip_line
from tunery.data.rows import Row

Format: TypeAlias = Literal["jsonl", "csv"]
Source: TypeAlias = Path | BinaryIO

# first bytes of what people upload instead
MAGIC: Final = {
    b"\x1f\x8b": "it is gzip-compressed",
    b"\x28\xb5\x2f\xfd": "it is zstd-compressed",
    b"BZh": "it is bzip2-compressed",
    b"\xfd7zXZ": "it is xz-compressed",
    b"PK\x03\x04": "it is a zip archive or an Excel workbook",
    b"PAR1": "it is a Parquet file",
    b"ARROW1": "it is an Arrow file",
    b"%PDF": "it is a PDF document",
    b"\x89PNG": "it is an image",
    b"\xff\xd8\xff": "it is an image",
}
WIDE: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x00\x00\xfe\xff": "UTF-32"}


@dataclass(frozen=True, slots=True)
class Head:
    """What the first bytes tell. `fault` is set when the file cannot be read as rows at all."""

    format: Format | None
    fault: Note | None = None


class Rows:
    """The rows of an open file: iterate once. `bytes_read` tells how far."""

    def __init__(self, stream: BinaryIO, head: Head) -> None:
        self._stream = stream
        self.format = head.format
        self._fault = head.fault

    @property
    def bytes_read(self) -> int:
        return self._stream.tell()

    def __iter__(self) -> Iterator[Row | Finding]:
        if self._fault is not None or self.format is None:
            if self._fault is not None:
                yield self._fault.at(None, None)
            return
        read = delimited.records if self.format == "csv" else jsonl
        rows = 0
        for item in read(self._stream):
            rows += isinstance(item, Row)
            if rows > ROWS_MAX:
                yield Note("too_many_rows", detail=f"more than {ROWS_MAX:,}").at(None, None)
                return
            yield item


@contextmanager
def open_rows(source: Source) -> Iterator[Rows]:
    """Open a path or a binary stream at its beginning. Raises `OSError` when it cannot be read."""
    if isinstance(source, Path):
        with source.open("rb", buffering=MIB) as stream:
            head = sniff(stream.read(SNIFF_BYTES))
            stream.seek(0)
            yield Rows(stream, head)
    else:
        first = source.read(SNIFF_BYTES)
        rest = io.BufferedReader(_Resumed(first, source), MIB)
        yield Rows(rest, sniff(first))


def jsonl(stream: BinaryIO) -> Iterator[Row | Finding]:
    """One row per physical line; blank lines and rows over the size limit are findings."""
    line = 0
    while raw := stream.readline(ROW_BYTES_MAX + 1):
        line += 1
        if len(raw) > ROW_BYTES_MAX and not raw.endswith(b"\n"):
            skip_line(stream)
            yield Note("row_too_large", excerpt=excerpt(raw)).at(line, line)
            continue
        content = raw.removeprefix(BOM).strip(BLANK)  # on any line: files get concatenated
        yield Row(line, line, content) if content else Note("blank_line").at(line, line)


def sniff(first: bytes) -> Head:
    """The format that the first bytes (up to `SNIFF_BYTES`) tell."""
    for magic, what in MAGIC.items():
        if first.startswith(magic):
            return Head(None, Note("unsupported_format", detail=what))
    encoding = next((name for magic, name in WIDE.items() if first.startswith(magic)), None)
    if encoding is None and first[:64].count(b"\0") > len(first[:64]) // 4:
        encoding = "UTF-16 or binary"
    if encoding is not None:
        return Head(None, Note("not_utf8", detail=f"it looks like {encoding}"))
    text = first.removeprefix(BOM).lstrip(BLANK)
    if not text:
        return Head("jsonl")
    lines = text.split(b"\n", 2)
    follows = len(lines) > 1 and any(line.strip(BLANK) for line in lines[1:])
    match text[:1]:
        case b"[":
            return _array(lines[0].strip(BLANK), follows)
        case b"{":
            return _object(lines, follows)
        case _:
            return Head("csv" if delimited.is_header(lines[0], lines[1:2]) else "jsonl")


def _array(line: bytes, follows: bool) -> Head:
    if follows and _decodes(line):
        return Head("jsonl")  # rows that are arrays: each is named
    return Head(None, Note("json_array", excerpt=excerpt(line)))


def _object(lines: list[bytes], follows: bool) -> Head:
    line = lines[0].strip(BLANK)
    indented = follows and lines[1][:1] in (b" ", b"\t") and not _decodes(line)
    if (line == b"{" and follows) or indented:
        return Head(None, Note("pretty_printed", excerpt=excerpt(b" ".join(lines[:2]))))
    return Head("jsonl")


def _decodes(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


class _Resumed(io.RawIOBase):
    """A stream with its first bytes put back."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first = first
        self._rest = rest
        self._read = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._read

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        if self._first:
            chunk, self._first = self._first[: len(view)], self._first[len(view) :]
        else:
            chunk = self._rest.read(len(view)) or b""
        view[: len(chunk)] = chunk
        self._read += len(chunk)
        return len(chunk)
