"""Reads CSV files with a header (RFC 4180, with line breaks inside quotes) in bounded memory.

The standard `csv` module is not used: its field limit is a global of the process, and with an
unclosed quotation mark it reads the rest of the file as one cell.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO, Final

from tunery.data.containers.line_reader import BLANK, BOM, skip_line
from tunery.data.containers.row import Row
from tunery.data.dialects.detection import LABEL_KEYS, USED_KEYS, Dialect, dialect_of
from tunery.data.dialects.parsing import Object, parse_cell
from tunery.data.dialects.single_turn import SYNONYMS
from tunery.data.findings.finding import Finding, Note, excerpt
from tunery.data.findings.limits import COLUMNS_MAX, COLUMNS_NAMED_MAX, ROW_BYTES_MAX

# The columns that each dialect needs; labels are checked row by row.
REQUIRED: Final[dict[Dialect, tuple[str, ...]]] = {
    "chat": ("messages",),
    "sharegpt": ("conversations",),
    "prompt_completion": ("prompt", "completion"),
    "alpaca": ("instruction", "output"),
    "text": ("text",),
    "dpo": ("prompt", "chosen", "rejected"),
    "kto": ("prompt", "completion"),
}
COLUMNS: Final = frozenset(chain.from_iterable(USED_KEYS.values()))
JSON_COLUMNS: Final = ("messages", "conversations", "tools")
BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
DELIMITERS: Final = (",", ";", "\t")
_NAME: Final = re.compile(r"[\w .()/-]{0,64}")


@dataclass(frozen=True, slots=True)
class _Record:
    """The physical lines of one record."""

    line: int  # number of the first line, from 1
    raw: bytes  # the bytes of the lines
    fault: Note | None = None  # why the record cannot be read


def is_header(first: bytes, following: list[bytes]) -> bool:
    """True if a first line is probably a CSV header, rather than malformed JSON."""
    try:
        header = first.decode("utf-8-sig").strip("\r\n")
    except UnicodeDecodeError:
        return False
    cells = [cell.strip().strip('"').strip().lower() for cell in _rough_cells(header)]
    if any(cell in COLUMNS for cell in cells):
        return True
    json_follows = bool(following) and following[0].lstrip()[:1] in (b"{", b"[")
    return len(cells) > 1 and not json_follows and all(_NAME.fullmatch(cell) for cell in cells)


def records(stream: BinaryIO) -> Iterator[Row | Finding]:
    """Yield rows with their cells by column name, and a finding for each malformed record."""
    lines = _records(stream)
    header = next(lines, None)
    if header is None:
        return
    names, delimiter, faults = _header(header)
    if faults:
        yield from (fault.to_finding(None, header.line) for fault in faults)
        return
    split = _splitter(delimiter)
    labels = LABEL_KEYS if dialect_of(dict.fromkeys(names)) == "kto" else frozenset()
    number = 0
    for record in lines:
        if not record.raw.strip(BLANK):
            yield Note("blank_line").to_finding(None, record.line)
            continue
        number += 1
        item = record.fault or _row(record, names, labels, split, number)
        yield item if isinstance(item, Row) else item.to_finding(number, record.line)
    if number == 0:
        yield Note("header_only").to_finding(None, header.line)


def _header(record: _Record) -> tuple[list[str], str, list[Note]]:
    """Read the header: column names in lower case, delimiter, and what is wrong with them."""
    if record.fault is not None:
        return [], ",", [record.fault]
    try:
        text = record.raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        return [], ",", [Note("invalid_utf8", detail=f"byte {error.start + 1} of the header")]
    delimiter = max(DELIMITERS, key=lambda delimiter: _count_known(text, delimiter))
    cells = _cells(text, _splitter(delimiter))
    if cells is None:
        return [], delimiter, [Note("stray_quote", detail="in the header", excerpt=excerpt(text))]
    names = [cell.strip().lower() for cell in cells]
    dialect = dialect_of(dict.fromkeys(names))
    if isinstance(dialect, Note):
        mixed = dialect.code == "mixed_formats"
        missing = Note("missing_column", detail=f"there are {_quoted_names(names)}")
        faults = [dialect if mixed else missing]
    else:
        faults = [
            Note("missing_column", detail=f"{name!r} is not among {_quoted_names(names)}")
            for name in REQUIRED[dialect]
            if name not in names and SYNONYMS.get(name) not in names
        ]
    repeated = sorted({name for name in names if name and names.count(name) > 1})
    if repeated and len(names) <= COLUMNS_MAX:
        faults.append(Note("duplicate_column", detail=_quoted_names(repeated)))
    return names, delimiter, faults


def _row(
    record: _Record,
    names: list[str],
    labels: frozenset[str],
    split: re.Pattern[str],
    number: int,
) -> Row | Note:
    """Split a record into cells. Returns a `Note` when it is malformed."""
    try:
        text = record.raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        detail = f"byte {error.start + 1} of the record"
        return Note("invalid_utf8", detail=detail, excerpt=excerpt(record.raw))
    cells = _cells(text, split)
    if cells is None:
        return Note("stray_quote", excerpt=excerpt(text))
    if len(cells) != len(names):
        detail = f"{len(cells)}, the header has {len(names)}"
        return Note("wrong_cell_count", detail=detail, excerpt=excerpt(text))
    content: Object = dict(zip(names, cells, strict=True))
    for name in labels & content.keys():
        content[name] = BOOLEANS.get(content[name].strip().lower(), content[name])
    for name in JSON_COLUMNS:
        if content.get(name, "").startswith("["):
            value = parse_cell(content[name])
            if isinstance(value, Note):
                return value
            content[name] = value
    return Row(number, record.line, content)


def _records(stream: BinaryIO) -> Iterator[_Record]:
    """Join physical lines to records while a quotation mark is open.

    When the file ends or the record exceeds its size limit first, only the opening line is a
    finding and reading continues with the next line: a missing quotation mark costs one record.
    """
    waiting: list[bytes] = []  # lines put back after such a finding, last first
    line = 0
    while True:
        raw = waiting.pop() if waiting else stream.readline(ROW_BYTES_MAX + 1)
        if not raw:
            return
        line += 1
        if line == 1:
            raw = raw.removeprefix(BOM)
        if len(raw) > ROW_BYTES_MAX and not raw.endswith(b"\n"):
            skip_line(stream)
            yield _Record(line, b"x", Note("row_too_large", excerpt=excerpt(raw)))
            continue
        joined, size, is_open = [raw], len(raw), raw.count(b'"') % 2 == 1
        while is_open and size <= ROW_BYTES_MAX:
            more = waiting.pop() if waiting else stream.readline(ROW_BYTES_MAX + 1)
            if not more:
                break
            joined.append(more)
            size += len(more)
            is_open ^= more.count(b'"') % 2 == 1
        if is_open:
            waiting.extend(reversed(joined[1:]))
            yield _Record(line, raw, Note("unclosed_quote", excerpt=excerpt(raw)))
            continue
        yield _Record(line, b"".join(joined))
        line += len(joined) - 1


def _splitter(delimiter: str) -> re.Pattern[str]:
    mark = re.escape(delimiter)
    quoted = r'[ \t]*"([^"]*(?:""[^"]*)*)"[ \t]*' if delimiter != "\t" else r'"([^"]*(?:""[^"]*)*)"'
    return re.compile(f'(?:{quoted}|([^"{mark}][^{mark}]*)?)({mark}|\\Z)')


def _cells(text: str, split: re.Pattern[str]) -> list[str] | None:
    """Split a record into cells; None when a quotation mark inside a cell is not doubled."""
    cells: list[str] = []
    position = 0
    while match := split.match(text, position):
        quoted, plain, end = match.groups()
        cells.append(quoted.replace('""', '"') if quoted is not None else plain or "")
        position = match.end()
        if not end:
            return cells
    return None


def _count_known(header: str, delimiter: str) -> int:
    """The number of known column names when the header is split at this delimiter."""
    cells = _cells(header, _splitter(delimiter)) or []
    return sum(cell.strip().lower() in COLUMNS for cell in cells)


def _rough_cells(header: str) -> list[str]:
    """Split at the most frequent delimiter, ignoring quotation marks."""
    delimiter = max(DELIMITERS, key=header.count)
    return header.split(delimiter, COLUMNS_MAX)


def _quoted_names(names: list[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:COLUMNS_NAMED_MAX])
    return f"{shown}, …" if len(names) > COLUMNS_NAMED_MAX else shown
