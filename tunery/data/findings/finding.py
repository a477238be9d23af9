"""Findings about a row or a file, and the collector that counts all of them and lists some."""

import re
from collections import Counter
from typing import Final

from msgspec import Struct

from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.limits import (
    EXCERPT_CHARS_MAX,
    EXCERPT_CHARS_READ_MAX,
    EXCERPT_CHARS_SCANNED,
    LISTED_PER_CODE_MAX,
)
from tunery.data.personal import mask

_NUMBER: Final = re.compile(r"\d(?:[ -]?\d){6,18}")  # with or without valid check digits
# A JSON object in base64: a web token that was cut off, is encrypted or is longer than usual.
_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9])eyJ[\w-]{8,}(?:\.[\w-]*)*", re.ASCII)
# What keys, tokens and addresses consist of: a cut between two of these may divide one.
_RUN: Final = re.compile(
    rf"[\w.@+/=:%-]{{0,{EXCERPT_CHARS_READ_MAX - EXCERPT_CHARS_SCANNED}}}", re.ASCII
)
_INVISIBLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Finding(Struct, frozen=True):
    """One fault or warning, with its position in the file."""

    # number of the row from 1 (line of JSONL, record of CSV); None for the whole file
    row: int | None
    # physical line on which the row begins, from 1; None for formats without lines
    line: int | None
    pointer: str  # JSON pointer (RFC 6901) into the row
    code: str  # a key of `CATALOGUE`
    message: str  # the meaning of the code, with a detail
    hint: str  # how to fix it
    excerpt: str = ""  # the beginning of the text in question, with personal data masked

    @property
    def is_error(self) -> bool:
        return CATALOGUE[self.code].severity == "error"


class Note(Struct, frozen=True):
    """A finding without its row number, which the rules of one row do not know."""

    code: str  # a key of `CATALOGUE`
    pointer: str = ""  # JSON pointer (RFC 6901) into the row
    detail: str = ""  # what exactly was read, added to the meaning of the code
    excerpt: str = ""  # the beginning of the text in question, with personal data masked

    @property
    def is_error(self) -> bool:
        return CATALOGUE[self.code].severity == "error"

    def to_finding(self, row: int | None, line: int | None) -> Finding:
        """Add the row and line number, and the text of the catalogue."""
        code = CATALOGUE[self.code]
        message = f"{code.meaning}: {self.detail}" if self.detail else code.meaning
        return Finding(row, line, self.pointer, self.code, message, code.fix, self.excerpt)


def excerpt(text: str | bytes, start: int = 0) -> str:
    """The first `EXCERPT_CHARS_MAX` characters from `start` on, on one line.

    Personal data, secrets and long numbers are masked before anything is cut off. A value that
    begins before `start` and ends after it is masked too. At most `EXCERPT_CHARS_READ_MAX`
    characters after `start`, and as many before it, are read.
    """
    if isinstance(text, bytes):
        text = text[: 4 * EXCERPT_CHARS_READ_MAX].decode("utf-8", "replace")
    end = _end_of_run(text, start + EXCERPT_CHARS_SCANNED)
    rest = text[start:end].rstrip() if start else text[:end].strip()
    shown = _masked(rest)
    before = text[max(0, start - EXCERPT_CHARS_READ_MAX) : start]
    if before := before[len(before) - _end_of_run(before[::-1], 0) :]:
        whole = _masked(before + rest)
        shown = shown if whole == _masked(before) + shown else whole
    shown = f"…{shown}" if start else shown
    if end < len(text) or len(shown) > EXCERPT_CHARS_MAX:
        shown = f"{shown[: EXCERPT_CHARS_MAX - 1]}…"
    return shown


def _end_of_run(text: str, at: int) -> int:
    """The end of the run of characters of one value that continues at an index."""
    run = _RUN.match(text, at)
    return run.end() if run else len(text)


def _masked(text: str) -> str:
    visible = _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return _NUMBER.sub("[number]", _TOKEN.sub("[secret]", mask(visible)))


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
