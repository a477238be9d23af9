"""Tables and lists of fields in a terminal: what people copy, like identifiers, stays whole.

Where a table is too wide, its sentences are folded. Where that is not enough, the last columns go
below each row, with their names.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from rich.text import Text

GAP: Final = 2
INDENT: Final = 4
FOLDED_MIN: Final = 20  # of a column of sentences
SENTENCE_SPACES: Final = 3  # a time with its zone has two

Row: TypeAlias = Sequence[str]


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None, dim: str = "dim"
) -> Iterator["Text"]:
    """The lines of a table.

    width: width of the terminal; None: as wide as needed. dim: the style of column names.
    """
    from rich.text import Text

    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(_length(text) for text in column) for column in zip(columns, *cells, strict=True)]
    shown = _folded(cells, widths, width)
    beside = _count_beside(shown, width)
    yield Text(_joined(columns[:beside], shown), style=dim)
    for row in cells:
        folded = [_wrap(text, size) for text, size in zip(row, shown, strict=True)][:beside]
        for number in range(max(map(len, folded))):
            line = [lines[number] if number < len(lines) else "" for lines in folded]
            yield Text(_joined(line, shown))
        below = [
            f"{name} {text}"
            for name, text in zip(columns[beside:], row[beside:], strict=True)
            if text
        ]
        yield from map(Text, _paragraph(below, width))


def field_lines(
    pairs: Iterable[tuple[str, Any]], width: int | None, dim: str = "dim"
) -> Iterator["Text"]:
    """A line for each field that has a value; a sentence is folded, anything else stays whole."""
    from rich.text import Text

    known = [(name, value) for name, value in pairs if value is not None and value != ""]
    label = max((len(name) for name, _ in known), default=0) + GAP
    for name, value in known:
        paragraphs = [_cell(line) for line in str(value).splitlines()] or [""]
        lines = [
            line
            for text in paragraphs
            for line in _wrap(text, None if width is None else max(FOLDED_MIN, width - label))
        ]
        yield Text.assemble((name.ljust(label), dim), lines[0])
        yield from (Text(" " * label + line) for line in lines[1:])


def _cell(value: Any) -> str:
    """A value on one line. What a terminal would act on is not sent to it."""
    text = "" if value is None else str(value)
    return "".join(character if character.isprintable() else " " for character in text)


def _length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _is_sentence(text: str) -> bool:
    return text.count(" ") >= SENTENCE_SPACES


def _folded(cells: Sequence[Row], widths: Sequence[int], width: int | None) -> list[int]:
    """The widths of the columns, those with sentences made narrower where all of them fit then."""
    shown = list(widths)
    if width is None:
        return shown
    sentences = [
        number
        for number in range(len(widths))
        if number > 0 and any(_is_sentence(row[number]) for row in cells)
    ]
    for number in sorted(sentences, key=lambda number: -widths[number]):
        excess = _total(shown) - width
        if excess > 0:
            shown[number] = max(min(FOLDED_MIN, shown[number]), shown[number] - excess)
    return shown if _total(shown) <= width else list(widths)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _count_beside(widths: Sequence[int], width: int | None) -> int:
    """How many columns fit beside each other; the first always does."""
    if width is None:
        return len(widths)
    fitting = [count for count in range(1, len(widths) + 1) if _total(widths[:count]) <= width]
    return max(fitting, default=1)


def _joined(texts: Row, widths: Sequence[int]) -> str:
    padded = (
        text + " " * (size - _length(text) + GAP) for text, size in zip(texts, widths, strict=False)
    )
    return "".join(padded).rstrip()


def _wrap(text: str, width: int | None) -> list[str]:
    if width is None or _length(text) <= width or not _is_sentence(text):
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _paragraph(parts: Sequence[str], width: int | None) -> Iterator[str]:
    """The parts beside each other in as many indented lines as they need."""
    line = ""
    for part in parts:
        longer = f"{line}{' ' * GAP}{part}" if line else " " * INDENT + part
        if line and width is not None and _length(longer) > width:
            yield line
            longer = " " * INDENT + part
        line = longer
    if line:
        yield line
