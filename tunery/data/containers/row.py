"""Rows as they were read, before anybody looked into them."""

from typing import Any

from msgspec import Struct

from tunery.data.containers.line_reader import BLANK


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

    def rows(self) -> list[Row]:
        lines = self.data.removesuffix(b"\n").split(b"\n")
        if b"\r" in self.data:
            lines = [line.strip(BLANK) for line in lines]
        return [Row(number, number, line) for number, line in enumerate(lines, self.line)]
