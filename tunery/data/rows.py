"""Rows as they were read, before anybody looked into them."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from tunery.data.lines import BLANK


class Row(Struct, frozen=True):
    """`number`: the physical line of JSONL; elsewhere the record, from 1, headers not counted.

    `line`: the physical line where the row begins; None in binary formats. `content`: the bytes of
    one JSON value, or the cells of one record by column name.
    """

    number: int
    line: int | None
    content: bytes | dict[str, Any]


class Block(Struct, frozen=True):
    """Whole lines of JSONL, each of which begins and ends with a brace.

    `line`: number of the first. `count`: how many there are.
    """

    line: int
    count: int
    data: bytes

    def rows(self) -> Iterator[Row]:
        lines = self.data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for number, content in enumerate(lines, self.line):
            yield Row(number, number, content.strip(BLANK))
