"""A file, row by row, in bounded memory. Its content tells the format, never its name.

Lines end at \\n only: U+2028, U+2029 and U+0085 inside strings are text. A byte order mark and
\\r\\n are fine.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct
from typing_extensions import Buffer

from tunery.data.containers import columnar, compression, delimited, json_array, multiline_objects
from tunery.data.containers.line_reader import BLANK, BOM, Lines
from tunery.data.containers.row import Block, Row
from tunery.data.findings.finding import Finding, Note, excerpt
from tunery.data.findings.limits import MIB, ROW_BYTES_MAX, ROWS_MAX, SNIFF_BYTES

Format: TypeAlias = Literal["jsonl", "json", "csv", "parquet", "arrow", "folder"]
Source: TypeAlias = Path | BinaryIO

# first bytes of what people upload instead
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


class Head(Struct, frozen=True):
    """What the first bytes tell. `fault` is set when the file cannot be read as rows at all."""

    format: Format | None
    fault: Note | None = None


class Rows:
    """The rows of an open file: iterate once. `bytes_read` tells how far, in bytes of the file."""

    def __init__(
        self,
        head: Head,
        items: Callable[[], Iterator[Block | Row | Finding]],
        told: Callable[[], int],
        rows_max: int | None = None,
    ) -> None:
        self.format = head.format
        self._rows_max = rows_max
        self._fault = head.fault
        self._items = items
        self._told = told

    @property
    def bytes_read(self) -> int:
        return self._told()

    def __iter__(self) -> Iterator[Row | Finding]:
        for item in self.blocks():
            if isinstance(item, Block):
                yield from item.rows()
            else:
                yield item

    def blocks(self) -> Iterator[Block | Row | Finding]:
        """The same with many rows at a time where they are alike. Rows past the limit are left."""
        if self._fault is not None:
            yield self._fault.at(None, None)
            return
        most = ROWS_MAX if self._rows_max is None else min(self._rows_max, ROWS_MAX)
        rows = 0
        try:
            for item in self._items():
                rows += item.count if isinstance(item, Block) else 1
                if rows > most:
                    yield Note("too_many_rows", detail=f"more than {most:,}").at(None, None)
                    return
                yield item
        except compression.Unreadable as error:
            yield error.note.at(None, None)


@contextmanager
def open_rows(source: Source, rows_max: int | None = None) -> Iterator[Rows]:
    """Open a file, a folder that `datasets` saved, or a binary stream at its beginning.

    Reading ends with an error after `rows_max` rows, or `ROWS_MAX`. Raises `OSError` when it cannot
    be read.
    """
    with ExitStack() as stack:
        if isinstance(source, Path) and source.is_dir():
            folder = columnar.Folder(source)
            yield Rows(Head("folder"), folder.rows, lambda: folder.bytes_read, rows_max)
            return
        if isinstance(source, Path):
            raw: BinaryIO = stack.enter_context(source.open("rb", buffering=MIB))
            first = raw.read(SNIFF_BYTES)
            raw.seek(0)
        else:
            first = source.read(SNIFF_BYTES)
            raw = io.BufferedReader(_Resumed(first, source), MIB)
        head, stream = sniff(first), raw
        if head.fault is None and compression.kind(first) is not None:
            try:
                stream, first = stack.enter_context(compression.opened(raw, first))
                head = sniff(first, inside=True)
            except compression.Unreadable as error:
                head = Head(None, error.note)
        yield Rows(head, lambda: _items(head.format, stream), raw.tell, rows_max)


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
            raise AssertionError("a folder is no stream, and a file without a format has a fault")
        case _:
            assert_never(form)


def jsonl(stream: BinaryIO) -> Iterator[Block | Row | Finding]:
    """One row per physical line; blank lines and rows over the size limit are findings."""
    lines = Lines(stream)
    spread = multiline_objects.Spread(lines)
    while True:
        first, data = lines.number, lines.block()
        if multiline_objects.is_regular(data):
            yield Block(first, lines.number - first, data)
            continue
        upto = lines.number
        lines.put_back(data)
        while True:
            number = lines.number
            raw = lines.line(ROW_BYTES_MAX + 1)
            if not raw:
                return
            yield _line(lines, spread, number, raw)
            if lines.number >= upto:
                break


def _line(lines: Lines, spread: multiline_objects.Spread, number: int, raw: bytes) -> Row | Finding:
    if len(raw) > ROW_BYTES_MAX and not raw.endswith(b"\n"):
        lines.skip()
        return Note("row_too_large", excerpt=excerpt(raw)).at(number, number)
    content = raw.removeprefix(BOM).strip(BLANK)  # on any line: files get concatenated
    if not content:
        return Note("blank_line").at(number, number)
    if more := spread.lines_more(content):
        detail = f"lines {number} to {number + more}"
        return Note("pretty_printed", detail=detail, excerpt=excerpt(raw)).at(number, number)
    return Row(number, number, content)


def sniff(first: bytes, *, inside: bool = False) -> Head:
    """The format that the first bytes (up to `SNIFF_BYTES`) tell; `inside`: of a compressed file.

    What a compressed file is inside is not told here: its format is None, without a fault.
    """
    if (packed := compression.kind(first)) is not None:
        if not inside:
            return Head(None)
        return Head(None, Note("unsupported_format", detail=f"{packed} inside a compressed file"))
    for magic, what in MAGIC.items():
        if first.startswith(magic):
            return Head(None, Note("unsupported_format", detail=what))
    for magic, form in COLUMNAR.items():
        if first.startswith(magic):
            return Head(form)
    encoding = next((name for magic, name in WIDE.items() if first.startswith(magic)), None)
    if encoding is None and first[:64].count(b"\0") > len(first[:64]) // 4:
        encoding = "UTF-16 or binary"
    if encoding is not None:
        return Head(None, Note("not_utf8", detail=f"it looks like {encoding}"))
    text = first.removeprefix(BOM).lstrip(BLANK)
    lines = text.split(b"\n", 2)
    if text.startswith(b"["):
        follows = any(line.strip(BLANK) for line in lines[1:])
        rows_of_arrays = follows and _decodes(lines[0].strip(BLANK))  # each will be named
        return Head("jsonl" if rows_of_arrays else "json")
    is_csv = text and text[:1] != b"{" and delimited.is_header(lines[0], lines[1:2])
    return Head("csv" if is_csv else "jsonl")


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
