"""CSV with a header: RFC 4180, quoted line breaks, in bounded memory.

The standard `csv` module is not used: its field limit is one global of the process, and an
unclosed quote makes it swallow the rest of the file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO, Final

from tunery.data.containers.line_reader import BLANK, BOM, skip_line
from tunery.data.containers.row import Row
from tunery.data.dialects.detection import LABELS, USED, Dialect, dialect_of
from tunery.data.dialects.parsing import Object, parse_cell
from tunery.data.dialects.single_turn import ALSO
from tunery.data.findings.finding import Finding, Note, excerpt
from tunery.data.findings.limits import COLUMNS_MAX, COLUMNS_NAMED_MAX, ROW_BYTES_MAX

# What a row cannot do without, and the other name of it; labels are told from the rows.
REQUIRED: Final[dict[Dialect, tuple[str, ...]]] = {
    "chat": ("messages",),
    "sharegpt": ("conversations",),
    "prompt_completion": ("prompt", "completion"),
    "alpaca": ("instruction", "output"),
    "text": ("text",),
    "dpo": ("prompt", "chosen", "rejected"),
    "kto": ("prompt", "completion"),
}
COLUMNS: Final = frozenset(chain.from_iterable(USED.values()))
JSON_COLUMNS: Final = ("messages", "conversations", "tools")
TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}
DELIMITERS: Final = (",", ";", "\t")
_NAME: Final = re.compile(r"[\w .()/-]{0,64}")


@dataclass(frozen=True, slots=True)
class _Record:
    """Physical lines that make one record, or `None` where no end of it was found."""

    line: int
    raw: bytes
    fault: Note | None = None


def is_header(first: bytes, following: list[bytes]) -> bool:
    """Whether a first line looks like a CSV header rather than like broken JSON."""
    try:
        header = first.decode("utf-8-sig").strip("\r\n")
    except UnicodeDecodeError:
        return False
    cells = [cell.strip().strip('"').strip().lower() for cell in _halves(header)]
    if any(cell in COLUMNS for cell in cells):
        return True
    json_follows = bool(following) and following[0].lstrip()[:1] in (b"{", b"[")
    return len(cells) > 1 and not json_follows and all(_NAME.fullmatch(cell) for cell in cells)


def records(stream: BinaryIO) -> Iterator[Row | Finding]:
    """Rows with their cells by column; every record that cannot be told apart is a finding."""
    lines = _records(stream)
    header = next(lines, None)
    if header is None:
        return
    names, delimiter, faults = _header(header)
    if faults:
        yield from (fault.at(None, header.line) for fault in faults)
        return
    split = _splitter(delimiter)
    labels = LABELS if dialect_of(dict.fromkeys(names)) == "kto" else frozenset()
    number = 0
    for record in lines:
        if not record.raw.strip(BLANK):
            yield Note("blank_line").at(None, record.line)
            continue
        number += 1
        found = record.fault or _row(record, names, labels, split, number)
        yield found if isinstance(found, Row) else found.at(number, record.line)
    if number == 0:
        yield Note("header_only").at(None, header.line)


def _header(record: _Record) -> tuple[list[str], str, list[Note]]:
    if record.fault is not None:
        return [], ",", [record.fault]
    try:
        text = record.raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        return [], ",", [Note("invalid_utf8", detail=f"byte {error.start + 1} of the header")]
    delimiter = max(DELIMITERS, key=lambda mark: _known(text, mark))
    cells = _cells(text, _splitter(delimiter))
    if cells is None:
        return [], delimiter, [Note("stray_quote", detail="in the header", excerpt=excerpt(text))]
    names = [cell.strip().lower() for cell in cells]
    dialect = dialect_of(dict.fromkeys(names))
    if isinstance(dialect, Note):
        known = dialect.code == "mixed_formats"
        faults = [dialect if known else Note("missing_column", detail=f"there are {_named(names)}")]
    else:
        faults = [
            Note("missing_column", detail=f"{name!r} is not among {_named(names)}")
            for name in REQUIRED[dialect]
            if name not in names and ALSO.get(name) not in names
        ]
    doubled = sorted({name for name in names if name and names.count(name) > 1})
    if doubled and len(names) <= COLUMNS_MAX:
        faults.append(Note("duplicate_column", detail=_named(doubled)))
    return names, delimiter, faults


def _row(
    record: _Record,
    names: list[str],
    labels: frozenset[str],
    split: re.Pattern[str],
    number: int,
) -> Row | Note:
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
    named: Object = dict(zip(names, cells, strict=True))
    for name in labels & named.keys():
        named[name] = TRUTH.get(named[name].strip().lower(), named[name])
    for name in JSON_COLUMNS:
        if named.get(name, "").startswith("["):
            value = parse_cell(named[name])
            if isinstance(value, Note):
                return value
            named[name] = value
    return Row(number, record.line, named)


def _records(stream: BinaryIO) -> Iterator[_Record]:
    """Physical lines joined while a quote is open.

    When the end or the size limit comes first, the opening line alone is the fault and reading
    goes on with the line after it, so that one forgotten quote costs one record.
    """
    waiting: list[bytes] = []  # lines taken back after such a fault, last first
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
        taken, size, is_open = [raw], len(raw), raw.count(b'"') % 2 == 1
        while is_open and size <= ROW_BYTES_MAX:
            more = waiting.pop() if waiting else stream.readline(ROW_BYTES_MAX + 1)
            if not more:
                break
            taken.append(more)
            size += len(more)
            is_open ^= more.count(b'"') % 2 == 1
        if is_open:
            waiting.extend(reversed(taken[1:]))
            yield _Record(line, raw, Note("unclosed_quote", excerpt=excerpt(raw)))
            continue
        yield _Record(line, b"".join(taken))
        line += len(taken) - 1


def _splitter(delimiter: str) -> re.Pattern[str]:
    mark = re.escape(delimiter)
    quoted = r'[ \t]*"([^"]*(?:""[^"]*)*)"[ \t]*' if delimiter != "\t" else r'"([^"]*(?:""[^"]*)*)"'
    return re.compile(f'(?:{quoted}|([^"{mark}][^{mark}]*)?)({mark}|\\Z)')


def _cells(text: str, split: re.Pattern[str]) -> list[str] | None:
    """The cells of one record, or None where a quote is not doubled."""
    cells: list[str] = []
    position = 0
    while match := split.match(text, position):
        quoted, plain, end = match.groups()
        cells.append(quoted.replace('""', '"') if quoted is not None else plain or "")
        position = match.end()
        if not end:
            return cells
    return None


def _known(header: str, delimiter: str) -> int:
    cells = _cells(header, _splitter(delimiter)) or []
    return sum(cell.strip().lower() in COLUMNS for cell in cells)


def _halves(header: str) -> list[str]:
    delimiter = max(DELIMITERS, key=header.count)
    return header.split(delimiter, COLUMNS_MAX)


def _named(names: list[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:COLUMNS_NAMED_MAX])
    return f"{shown}, …" if len(names) > COLUMNS_NAMED_MAX else shown
