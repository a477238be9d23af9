"""Recognises JSON objects that are written over several lines of a JSONL file."""

import re
from typing import Final

from tunery.data.containers.line_reader import LineReader
from tunery.data.findings.limits import OBJECT_LINES_MAX, ROW_BYTES_MAX

# a line break without a brace on either side
_BETWEEN: Final = re.compile(rb"\n(?:(?<!\}\n)(?<!\}\r\n)|(?!\{|\Z))")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_BRACKETS: Final = re.compile(rb"[][{}]")

TRIES_MAX: Final = 4


def is_regular(data: bytes) -> bool:
    """True if every line begins and ends with a brace, so that no object spans lines."""
    return data.startswith(b"{") and _BETWEEN.search(data) is None


class MultilineObjects:
    """Finds the ends of objects that are written over several lines."""

    def __init__(self, lines: LineReader) -> None:
        self._lines = lines
        # The last line searched without success, and the number of such searches: their number
        # is limited, or the running time would be quadratic.
        self._searched = self._tries = 0

    def skip_rest(self, first: bytes) -> int:
        """Read the remaining lines of the object that `first` opens, and return their number.

        Returns 0 and reads nothing when the object is complete, or merely truncated.
        """
        if first[:1] != b"{" or first[-1:] == b"}":
            return 0
        if self._lines.number > self._searched:
            self._tries = 0
        elif self._tries >= TRIES_MAX:
            return 0
        depth = _opened_brackets(first)
        rest: list[bytes] = []
        size = 0
        while depth is not None and depth > 0 and len(rest) < OBJECT_LINES_MAX:
            raw = self._lines.line(ROW_BYTES_MAX)
            rest.append(raw)
            size += len(raw)
            if not raw or raw.startswith(b'{"') or size > ROW_BYTES_MAX:
                break
            opened = _opened_brackets(raw)
            depth = None if opened is None else depth + opened
        if depth == 0:
            return len(rest)
        self._lines.put_back(b"".join(rest))
        self._tries += 1
        self._searched = max(self._searched, self._lines.number + len(rest) - 2)
        return 0


def _opened_brackets(line: bytes) -> int | None:
    """Opened minus closed brackets of a line; None when a string does not end on it."""
    outside = _STRING.sub(b"", line)
    if b'"' in outside:
        return None
    return sum(1 if bracket in b"[{" else -1 for bracket in _BRACKETS.findall(outside))
