"""Splits one JSON array into its elements, in bounded memory.

Only brackets, strings and commas are recognised here; each element is parsed later, so that an
invalid element does not end the others. Libraries such as ijson stop at the first invalid element.
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
_INSIDE: Final = re.compile(rb'["\\\n]')  # a line break ends an unclosed string


@dataclass(slots=True)
class _Scanner:
    """The state of the scan between two chunks."""

    number: int = 0  # elements so far
    line: int = 1  # current physical line, from 1
    begins: int = 1  # line on which the current element begins
    depth: int = 0  # open brackets; 1 between elements, 0 before and after the array
    in_string: bool = False  # whether the next byte is inside a string
    skip: int = 0  # bytes at the beginning of the next chunk that belong to an escape
    size: int = 0  # bytes of the current element so far
    # the bytes of the current element, up to the size limit
    pieces: list[bytes] = field(default_factory=list)

    def feed(self, chunk: bytes) -> Iterator[Row | Finding]:
        """Yield the elements that end in this chunk."""
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
                ended = mark == b"\n" and self._close_string(chunk[opened:at])
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
        """Yield what is left at the end of the file."""
        rest = b"".join(self.pieces).strip(BLANK)
        if self.depth > 1 or (self.depth == 1 and rest):
            yield from self._element(last=False)
        if self.depth == 1:
            note = Note("truncated_json", detail="the array is not closed")
            yield note.to_finding(None, self.line)
        if self.depth == 0 and rest:
            detail = f"text after the end of the array, line {self.begins}"
            note = Note("invalid_json", detail=detail, excerpt=excerpt(rest))
            yield note.to_finding(None, self.begins)

    def _close_string(self, text: bytes) -> bool:
        """End an unclosed string at the end of its line, and count the brackets inside it.

        Returns whether an element ends there.
        """
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
            yield Note("trailing_comma").to_finding(self.number, self.begins)
        elif size > ROW_BYTES_MAX:
            note = Note("row_too_large", excerpt=excerpt(content))
            yield note.to_finding(self.number, self.begins)
        else:
            yield Row(self.number, self.begins, content)


def elements(stream: BinaryIO) -> Iterator[Row | Finding]:
    """Yield the elements of an array as rows, numbered from 1."""
    scanner = _Scanner()
    chunk = stream.read(MIB).removeprefix(BOM)
    while chunk:
        yield from scanner.feed(chunk)
        chunk = stream.read(MIB)
    yield from scanner.finish()
