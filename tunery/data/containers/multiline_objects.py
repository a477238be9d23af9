"""Lines that hold one object each, and objects that are spread over many lines."""

import re
from typing import Final

from tunery.data.containers.line_reader import Lines
from tunery.data.findings.limits import ROW_BYTES_MAX, SPREAD_LINES_MAX

# a line break without a brace on either side
_BETWEEN: Final = re.compile(rb"\n(?:(?<!\}\n)(?<!\}\r\n)|(?!\{|\Z))")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_BRACKETS: Final = re.compile(rb"[][{}]")

TRIES_MAX: Final = 4


def is_regular(data: bytes) -> bool:
    """Every line begins and ends with a brace, so no object goes on from one line to the next."""
    return data.startswith(b"{") and _BETWEEN.search(data) is None


class Spread:
    """Finds the ends of objects that go on over many lines."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        # Up to this line in vain, so often: not for ever, or the time would grow squared.
        self._looked_at = self._tries = 0

    def lines_more(self, first: bytes) -> int:
        """How many of the next lines belong to the object that `first` opens; they are taken.

        0 when it is whole, or simply cut off: then nothing is taken.
        """
        if first[:1] != b"{" or first[-1:] == b"}":
            return 0
        if self._lines.number > self._looked_at:
            self._tries = 0
        elif self._tries >= TRIES_MAX:
            return 0
        depth = _deeper(first)
        taken: list[bytes] = []
        size = 0
        while depth is not None and depth > 0 and len(taken) < SPREAD_LINES_MAX:
            raw = self._lines.line(ROW_BYTES_MAX)
            taken.append(raw)
            size += len(raw)
            if not raw or raw.startswith(b'{"') or size > ROW_BYTES_MAX:
                break
            deeper = _deeper(raw)
            depth = None if deeper is None else depth + deeper
        if depth == 0:
            return len(taken)
        self._lines.put_back(b"".join(taken))
        self._tries += 1
        self._looked_at = max(self._looked_at, self._lines.number + len(taken) - 2)
        return 0


def _deeper(line: bytes) -> int | None:
    """Brackets opened less brackets closed; None when a string does not end on its line."""
    bare = _STRING.sub(b"", line)
    if b'"' in bare:
        return None
    return sum(1 if mark in b"[{" else -1 for mark in _BRACKETS.findall(bare))
