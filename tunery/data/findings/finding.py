"""Findings about a row or a file, and the collector that counts all of them and lists some."""

import re
from collections import Counter
from typing import Final

from msgspec import Struct

from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.limits import EXCERPT_CHARS_MAX, LISTED_PER_CODE_MAX
from tunery.data.personal import mask

_NUMBER: Final = re.compile(r"\d(?:[ -]?\d){6,18}")  # with or without valid check digits
_INVISIBLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Finding(Struct, frozen=True):
    """One fault or warning, with its position in the file.

    row: number of the row from 1 (line of JSONL, record of CSV); None for the whole file
    line: physical line on which the row begins, from 1; None for formats without lines
    pointer: JSON pointer (RFC 6901) into the row
    code: a key of `CATALOGUE`
    message: the meaning of the code, with a detail
    hint: how to fix it
    excerpt: the beginning of the text in question, with personal data masked
    """

    row: int | None
    line: int | None
    pointer: str
    code: str
    message: str
    hint: str
    excerpt: str = ""

    @property
    def is_error(self) -> bool:
        return CATALOGUE[self.code].severity == "error"


class Note(Struct, frozen=True):
    """A finding without its row number, which the rules of one row do not know.

    code: a key of `CATALOGUE`
    pointer: JSON pointer (RFC 6901) into the row
    detail: what exactly was read, added to the meaning of the code
    excerpt: the beginning of the text in question, with personal data masked
    """

    code: str
    pointer: str = ""
    detail: str = ""
    excerpt: str = ""

    @property
    def is_error(self) -> bool:
        return CATALOGUE[self.code].severity == "error"

    def to_finding(self, row: int | None, line: int | None) -> Finding:
        """Add the row and line number, and the text of the catalogue."""
        code = CATALOGUE[self.code]
        message = f"{code.meaning}: {self.detail}" if self.detail else code.meaning
        return Finding(row, line, self.pointer, self.code, message, code.fix, self.excerpt)


def excerpt(text: str | bytes) -> str:
    """The first `EXCERPT_CHARS_MAX` characters on one line.

    Personal data, secrets and long numbers are masked.
    """
    if isinstance(text, bytes):
        text = text[: 16 * EXCERPT_CHARS_MAX].decode("utf-8", "replace")
    head = _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text[: 4 * EXCERPT_CHARS_MAX].strip())
    head = _NUMBER.sub("[number]", mask(head))
    return head if len(head) <= EXCERPT_CHARS_MAX else f"{head[: EXCERPT_CHARS_MAX - 1]}…"


class Collector:
    """Counts every finding, and lists the first `listed_max` of each code in order of arrival."""

    def __init__(self, listed_max: int = LISTED_PER_CODE_MAX) -> None:
        self.counts: Counter[str] = Counter()
        self.listed: list[Finding] = []
        self._listed_max = listed_max

    def add(self, finding: Finding) -> None:
        self.counts[finding.code] += 1
        if self.counts[finding.code] <= self._listed_max:
            self.listed.append(finding)

    def with_severity(self, severity: str) -> tuple[Finding, ...]:
        return tuple(f for f in self.listed if CATALOGUE[f.code].severity == severity)

    def count(self, severity: str) -> int:
        return sum(n for code, n in self.counts.items() if CATALOGUE[code].severity == severity)
