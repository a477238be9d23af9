"""One finding about a row or a file, and the collector: exact counts, a listing with a limit."""

import re
from collections import Counter
from typing import Final

from msgspec import Struct

from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.limits import EXCERPT_CHARS_MAX, LISTED_PER_CODE_MAX
from tunery.data.personal import mask

_NUMBER: Final = re.compile(r"\d(?:[ -]?\d){6,18}")  # whatever its check digits say
_INVISIBLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Finding(Struct, frozen=True):
    """`row` counts from 1: the physical line of JSONL, the record of CSV; None: the whole file.

    `line` is the physical line where the row begins, `pointer` a JSON pointer into the row.
    """

    row: int | None
    line: int | None
    pointer: str
    code: str
    message: str
    hint: str
    excerpt: str = ""


class Note(Struct, frozen=True):
    """A finding inside a row that does not know yet which row it is in."""

    code: str
    pointer: str = ""
    detail: str = ""
    excerpt: str = ""

    @property
    def is_error(self) -> bool:
        return CATALOGUE[self.code].severity == "error"

    def at(self, row: int | None, line: int | None) -> Finding:
        code = CATALOGUE[self.code]
        message = f"{code.meaning}: {self.detail}" if self.detail else code.meaning
        return Finding(row, line, self.pointer, self.code, message, code.fix, self.excerpt)


def excerpt(text: str | bytes) -> str:
    """The beginning of a text on one line; personal data, secrets and long numbers are masked."""
    if isinstance(text, bytes):
        text = text[: 16 * EXCERPT_CHARS_MAX].decode("utf-8", "replace")
    head = _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text[: 4 * EXCERPT_CHARS_MAX].strip())
    head = _NUMBER.sub("[number]", mask(head))
    return head if len(head) <= EXCERPT_CHARS_MAX else f"{head[: EXCERPT_CHARS_MAX - 1]}…"


class Collector:
    """Counts every finding; lists the first `listed_max` of each code, in the order they came."""

    def __init__(self, listed_max: int = LISTED_PER_CODE_MAX) -> None:
        self.counts: Counter[str] = Counter()
        self.listed: list[Finding] = []
        self._listed_max = listed_max

    def add(self, finding: Finding) -> None:
        self.counts[finding.code] += 1
        if self.counts[finding.code] <= self._listed_max:
            self.listed.append(finding)

    def of(self, severity: str) -> tuple[Finding, ...]:
        return tuple(f for f in self.listed if CATALOGUE[f.code].severity == severity)

    def count(self, severity: str) -> int:
        return sum(n for code, n in self.counts.items() if CATALOGUE[code].severity == severity)
