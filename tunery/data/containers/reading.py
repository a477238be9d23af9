"""Reads a file row by row in bounded memory. The format is recognised by content, never by name.

Lines end at \\n only: U+2028, U+2029 and U+0085 inside strings are text. A byte order mark and
\\r\\n are accepted.
"""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct
from typing_extensions import Buffer

from tunery.data.containers import columnar, compression, delimited, json_array
from tunery.data.containers.line_reader import BLANK, BOM, LineReader
from tunery.data.containers.row import Block, Row
from tunery.data.findings.finding import Finding, Note, excerpt
from tunery.data.findings.limits import MIB, OBJECT_LINES_MAX, ROW_BYTES_MAX, ROWS_MAX, SNIFF_BYTES

# Recognises JSON objects that are written over several lines of a JSONL file.

# a line break without a brace on either side
_BETWEEN: Final = re.compile(rb"\n(?:(?<!\}\n)(?<!\}\r\n)|(?!\{|\Z))")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_BRACKETS: Final = re.compile(rb"[][{}]")

TRIES_MAX: Final = 4


def is_regular(data: bytes) -> bool:
    """True if every line begins and ends with a brace, so that no object spans lines."""
    return data.startswith(b"{") and _BETWEEN.search(data) is None


class MultilineObjects:
    """Finds the ends of objects that are written over several lines."""

    def __init__(self, lines: LineReader) -> None:
        self._lines = lines
        # The last line searched without success, and the number of such searches: their number
        # is limited, or the running time would be quadratic.
        self._searched = self._tries = 0

    def skip_rest(self, first: bytes) -> int:
        """Read the remaining lines of the object that `first` opens, and return their number.

        Returns 0 and reads nothing when the object is complete, or merely truncated.
        """
        if first[:1] != b"{" or first[-1:] == b"}":
            return 0
        if self._lines.number > self._searched:
            self._tries = 0
        elif self._tries >= TRIES_MAX:
            return 0
        depth = _opened_brackets(first)
        rest: list[bytes] = []
        size = 0
        while depth is not None and depth > 0 and len(rest) < OBJECT_LINES_MAX:
            raw = self._lines.line(ROW_BYTES_MAX)
            rest.append(raw)
            size += len(raw)
            if not raw or raw.startswith(b'{"') or size > ROW_BYTES_MAX:
                break
            opened = _opened_brackets(raw)
            depth = None if opened is None else depth + opened
        if depth == 0:
            return len(rest)
        self._lines.put_back(b"".join(rest))
        self._tries += 1
        self._searched = max(self._searched, self._lines.number + len(rest) - 2)
        return 0


def _opened_brackets(line: bytes) -> int | None:
    """Opened minus closed brackets of a line; None when a string does not end on it."""
    outside = _STRING.sub(b"", line)
    if b'"' in outside:
        return None
    return sum(1 if bracket in b"[{" else -1 for bracket in _BRACKETS.findall(outside))


Format: TypeAlias = Literal["jsonl", "json", "csv", "parquet", "arrow", "folder"]
Source: TypeAlias = Path | BinaryIO

# the first bytes of files that users upload by mistake
MAGIC: Final = {
    b"BZh": "it is bzip2-compressed",
    b"\xfd7zXZ": "it is xz-compressed",
    b"PK\x03\x04": "it is a zip archive or an Excel workbook",
    b"%PDF": "it is a PDF document",
    b"\x89PNG": "it is an image",
    b"\xff\xd8\xff": "it is an image",
    b"\x89HDF": "it is an HDF5 file",
    b"\x93NUMPY": "it is a NumPy array",
    b"\x80\x04": "it is a Python pickle",
    b"SQLite format 3": "it is an SQLite database",
}
COLUMNAR: Final[dict[bytes, Format]] = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",  # a stream, as `datasets` saves it
}
WIDE: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x00\x00\xfe\xff": "UTF-32"}


class DetectedFormat(Struct, frozen=True):
    """The format recognised from the first bytes of a file."""

    format: Format | None  # None for a compressed file, or one that cannot be read
    fault: Note | None = None  # why the file cannot be read as rows


class Rows:
    """The rows of an open file, to be iterated once."""

    def __init__(
        self,
        detected: DetectedFormat,
        items: Callable[[], Iterator[Block | Row | Finding]],
        position: Callable[[], int],
        rows_max: int | None = None,
    ) -> None:
        self.format = detected.format
        self._rows_max = rows_max
        self._fault = detected.fault
        self._items = items
        self._position = position

    @property
    def bytes_read(self) -> int:
        """Bytes of the file read so far."""
        return self._position()

    def __iter__(self) -> Iterator[Row | Finding]:
        for item in self.blocks():
            if isinstance(item, Block):
                yield from item.rows()
            else:
                yield item

    def blocks(self) -> Iterator[Block | Row | Finding]:
        """Yield blocks of rows where possible, else single rows. Stops after the row limit."""
        if self._fault is not None:
            yield self._fault.to_finding(None, None)
            return
        rows_max = ROWS_MAX if self._rows_max is None else min(self._rows_max, ROWS_MAX)
        rows = 0
        try:
            for item in self._items():
                rows += item.count if isinstance(item, Block) else 1
                if rows > rows_max:
                    note = Note("too_many_rows", detail=f"more than {rows_max:,}")
                    yield note.to_finding(None, None)
                    return
                yield item
        except compression.FileReadError as error:
            yield error.note.to_finding(None, None)


@contextmanager
def open_rows(source: Source, rows_max: int | None = None) -> Iterator[Rows]:
    """Open a file, a folder that `datasets` saved, or a binary stream at its beginning.

    Reading ends with a finding after `rows_max` rows (at most `ROWS_MAX`). Raises `OSError` when
    the file cannot be opened or read.
    """
    with ExitStack() as stack:
        if isinstance(source, Path) and source.is_dir():
            folder = columnar.DatasetFolder(source)
            yield Rows(DetectedFormat("folder"), folder.rows, lambda: folder.bytes_read, rows_max)
            return
        if isinstance(source, Path):
            raw: BinaryIO = stack.enter_context(source.open("rb", buffering=MIB))
            first = raw.read(SNIFF_BYTES)
            raw.seek(0)
        else:
            first = source.read(SNIFF_BYTES)
            raw = io.BufferedReader(_Resumed(first, source), MIB)
        detected, stream = sniff(first), raw
        if detected.fault is None and compression.compression_of(first) is not None:
            try:
                stream, first = stack.enter_context(compression.open_compressed(raw, first))
                detected = sniff(first, inside=True)
            except compression.FileReadError as error:
                detected = DetectedFormat(None, error.note)
        yield Rows(detected, lambda: _items(detected.format, stream), raw.tell, rows_max)


def _items(form: Format | None, stream: BinaryIO) -> Iterator[Block | Row | Finding]:
    match form:
        case "jsonl":
            return jsonl(stream)
        case "json":
            return json_array.elements(stream)
        case "csv":
            return delimited.records(stream)
        case "parquet":
            return columnar.parquet(stream)
        case "arrow":
            return columnar.arrow(stream)
        case "folder" | None:
            raise AssertionError(
                "a folder is not a stream, and a file without a format has a fault"
            )
        case _:
            assert_never(form)


def jsonl(stream: BinaryIO) -> Iterator[Block | Row | Finding]:
    """Yield one row per physical line; blank lines and rows above the size limit are findings."""
    lines = LineReader(stream)
    objects = MultilineObjects(lines)
    while True:
        first, data = lines.number, lines.block()
        if is_regular(data):
            yield Block(first, lines.number - first, data)
            continue
        block_end = lines.number
        lines.put_back(data)
        while True:
            number = lines.number
            raw = lines.line(ROW_BYTES_MAX + 1)
            if not raw:
                return
            yield _line(lines, objects, number, raw)
            if lines.number >= block_end:
                break


def _line(lines: LineReader, objects: MultilineObjects, number: int, raw: bytes) -> Row | Finding:
    """The row that begins on this line, or the finding about it."""
    if len(raw) > ROW_BYTES_MAX and not raw.endswith(b"\n"):
        lines.skip()
        return Note("row_too_large", excerpt=excerpt(raw)).to_finding(number, number)
    content = raw.removeprefix(BOM).strip(BLANK)  # on any line, since files are concatenated
    if not content:
        return Note("blank_line").to_finding(number, number)
    if more := objects.skip_rest(content):
        detail = f"lines {number} to {number + more}"
        note = Note("pretty_printed", detail=detail, excerpt=excerpt(raw))
        return note.to_finding(number, number)
    return Row(number, number, content)


def sniff(first: bytes, *, inside: bool = False) -> DetectedFormat:
    """Recognise the format from the first bytes (up to `SNIFF_BYTES`).

    `inside`: the bytes are the content of a compressed file. The format of a compressed file itself
    is None, without a fault.
    """
    if (outer := compression.compression_of(first)) is not None:
        if not inside:
            return DetectedFormat(None)
        return DetectedFormat(
            None, Note("unsupported_format", detail=f"{outer} inside a compressed file")
        )
    for magic, description in MAGIC.items():
        if first.startswith(magic):
            return DetectedFormat(None, Note("unsupported_format", detail=description))
    for magic, form in COLUMNAR.items():
        if first.startswith(magic):
            return DetectedFormat(form)
    encoding = next((name for magic, name in WIDE.items() if first.startswith(magic)), None)
    if encoding is None and first[:64].count(b"\0") > len(first[:64]) // 4:
        encoding = "UTF-16 or binary"
    if encoding is not None:
        return DetectedFormat(None, Note("not_utf8", detail=f"it looks like {encoding}"))
    text = first.removeprefix(BOM).lstrip(BLANK)
    lines = text.split(b"\n", 2)
    if text.startswith(b"["):
        follows = any(line.strip(BLANK) for line in lines[1:])
        rows_of_arrays = follows and _decodes(lines[0].strip(BLANK))  # each is reported
        return DetectedFormat("jsonl" if rows_of_arrays else "json")
    is_csv = text and text[:1] != b"{" and delimited.is_header(lines[0], lines[1:2])
    return DetectedFormat("csv" if is_csv else "jsonl")


def _decodes(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


class _Resumed(io.RawIOBase):
    """A stream whose first bytes, already read, are read again."""

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
