"""The elements of one JSON array, in bounded memory.

Only brackets, strings and commas are told apart here; whether an element is valid JSON is found
where rows are parsed, so that one bad element does not end the others.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from tunery.data.containers.line_reader import BLANK, BOM
from tunery.data.containers.row import Row
from tunery.data.findings.finding import Finding, Note, excerpt
from tunery.data.findings.limits import MIB, ROW_BYTES_MAX

_OUTSIDE: Final = re.compile(rb'["\[\]{},]')
_OPENS: Final = re.compile(rb"[\[{]")
_CLOSES: Final = re.compile(rb"[\]}]")
_INSIDE: Final = re.compile(rb'["\\\n]')  # a line break ends a string that was never closed


@dataclass(slots=True)
class _Scanner:
    """Where the reading is. `depth`: 1 between elements, 0 after the array."""

    number: int = 0
    line: int = 1
    begins: int = 1  # line of the element
    depth: int = 0
    in_string: bool = False
    skip: int = 0  # bytes of an escape that the next chunk begins with
    size: int = 0
    pieces: list[bytes] = field(default_factory=list)

    def feed(self, chunk: bytes) -> Iterator[Row | Finding]:
        """Elements that end in this chunk."""
        at = kept = self.skip
        self.skip = opened = 0
        if kept:
            self._keep(chunk[:kept])
        while self.depth or not self.number:
            match = (_INSIDE if self.in_string else _OUTSIDE).search(chunk, at)
            if match is None:
                break
            mark, at, ended = match[0], match.end(), False
            if self.in_string:
                at += mark == b"\\"
                self.in_string = mark == b"\\"
                ended = mark == b"\n" and self._broken(chunk[opened:at])
            elif mark == b'"':
                self.in_string, opened = True, at
            elif mark in b"[{":
                self.depth += 1
                if self.depth == 1:  # the array's own bracket
                    self._keep(chunk[kept:at])
                    self.pieces, self.size, kept, self.begins = [], 0, at, self.line
            elif mark in b"]}":
                self.depth -= 1
            if self.depth == 0 or ended or (self.depth == 1 and mark == b","):
                self._keep(chunk[kept : at - 1])
                yield from self._element(last=self.depth == 0)
                kept = at - ended  # the line break is counted with what follows
        self._keep(chunk[kept:])
        self.skip = max(0, at - len(chunk))

    def finish(self) -> Iterator[Row | Finding]:
        """What is left when the bytes end."""
        rest = b"".join(self.pieces).strip(BLANK)
        if self.depth > 1 or (self.depth == 1 and rest):
            yield from self._element(last=False)
        if self.depth == 1:
            yield Note("truncated_json", detail="the array is not closed").at(None, self.line)
        if self.depth == 0 and rest:
            detail = f"text after the end of the array, line {self.begins}"
            yield Note("invalid_json", detail=detail, excerpt=excerpt(rest)).at(None, self.begins)

    def _broken(self, text: bytes) -> bool:
        """A string that its line ends: its brackets count after all. Says if an element ends."""
        self.depth += len(_OPENS.findall(text)) - len(_CLOSES.findall(text))
        self.depth = max(self.depth, 1)
        return self.depth == 1 and text.rstrip(BLANK).endswith(b",")

    def _keep(self, piece: bytes) -> None:
        if self.size <= ROW_BYTES_MAX and piece:
            if not self.size and not piece.strip(BLANK):
                self.begins = self.line + piece.count(b"\n")
            else:
                if not self.size:
                    lead = len(piece) - len(piece.lstrip(BLANK))
                    self.begins = self.line + piece.count(b"\n", 0, lead)
                self.pieces.append(piece)
                self.size += len(piece)
        self.line += piece.count(b"\n")

    def _element(self, *, last: bool) -> Iterator[Row | Finding]:
        content = b"".join(self.pieces).strip(BLANK)
        size, self.pieces, self.size = self.size, [], 0
        if not content and last and not self.number:
            self.number = -1  # an empty array: no rows
            return
        self.number += 1
        if not content:
            yield Note("trailing_comma").at(self.number, self.begins)
        elif size > ROW_BYTES_MAX:
            note = Note("row_too_large", excerpt=excerpt(content))
            yield note.at(self.number, self.begins)
        else:
            yield Row(self.number, self.begins, content)


def elements(stream: BinaryIO) -> Iterator[Row | Finding]:
    """The elements as rows, by their place in the array from 1."""
    scanner = _Scanner()
    chunk = stream.read(MIB).removeprefix(BOM)
    while chunk:
        yield from scanner.feed(chunk)
        chunk = stream.read(MIB)
    yield from scanner.finish()
