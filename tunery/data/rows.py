"""A row as it was read, before anybody looked into it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """`number`: the physical line of JSONL, the record of CSV (from 1, header not counted).

    `content`: the bytes of one JSON line, or the cells of one record by column name.
    """

    number: int
    line: int
    content: bytes | dict[str, str]
