"""Rows as they were read, before they are checked."""

from typing import Any

from msgspec import Struct

from tunery.data.containers.line_reader import BLANK


class Row(Struct, frozen=True):
    """One row of a file."""

    number: int  # the physical line of JSONL, else the record; from 1, headers not counted
    line: int | None  # the physical line on which the row begins; None for binary formats
    # the bytes of one JSON value, or the cells of one record by column name
    content: bytes | dict[str, Any]


class Block(Struct, frozen=True):
    """Several whole lines of JSONL, each of which begins and ends with a brace."""

    line: int  # number of the first line
    count: int  # number of lines
    data: bytes  # their bytes

    def rows(self) -> list[Row]:
        lines = self.data.removesuffix(b"\n").split(b"\n")
        if b"\r" in self.data:
            lines = [line.strip(BLANK) for line in lines]
        return [Row(number, number, line) for number, line in enumerate(lines, self.line)]
