"""What a check found, as a value and as JSON."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from schemas.dataset import PackPlan
from tunery.data.findings.finding import Finding

Verdict: TypeAlias = Literal["accepted", "rejected"]


class Bin(Struct, frozen=True):
    """Rows of at most `upto` tokens, or characters, that did not fit the bin before."""

    upto: int
    rows: int


class Piece(Struct, frozen=True):
    """The text of one token, or of a few that make one character. `learnt`: it is a label."""

    text: str
    learnt: bool


class Sample(Struct, frozen=True):
    """The beginning of a row as the model sees it, and how many tokens more it has."""

    row: int
    pieces: tuple[Piece, ...]
    more: int


class TokenCounts(Struct, frozen=True):
    """Exact counts under one base model's tokenizer and chat template, before any truncation."""

    tokens: int
    trainable_tokens: int
    longest_row_tokens: int
    rows: int
    tokenizer_sha256: str
    template_sha256: str
    histogram: tuple[Bin, ...]
    plans: tuple[PackPlan, ...] = ()


class Report(Struct, frozen=True):
    """`errors` and `warnings` list at most 1,000 of each code; `counts` holds every one.

    `rows` counts all rows, `rows_with_errors` those that have any; `lengths` are good rows by
    characters; `not_looked_for` are kinds of content that this check says nothing about; `tokens`
    is set when a base model was given and any row could be rendered.
    """

    verdict: Verdict
    format: str | None
    dialect: str | None
    file_bytes: int
    rows: int
    rows_with_errors: int
    distinct_rows: int
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    counts: dict[str, int]
    error_count: int
    warning_count: int
    not_looked_for: tuple[str, ...] = ()
    lengths: tuple[Bin, ...] = ()
    tokens: TokenCounts | None = None
    samples: tuple[Sample, ...] = ()

    def summary(self) -> dict[str, object]:
        """What `tunery data check --json` prints; the message tells a line that is not the row."""
        return {
            "verdict": self.verdict,
            "rows": self.rows,
            "errors": [_entry(finding) for finding in self.errors],
            "warnings": [_entry(finding) for finding in self.warnings],
            "counts": self.counts,
            "tokens": self.tokens,
        }

    def to_json(self) -> bytes:
        """One JSON object, the same bytes for the same file."""
        return msgspec.json.encode(self, order="deterministic")


def _entry(finding: Finding) -> dict[str, object]:
    elsewhere = finding.line is not None and finding.line != finding.row
    return {
        "row": finding.row,
        "pointer": finding.pointer,
        "code": finding.code,
        "message": f"{finding.message} (line {finding.line})" if elsewhere else finding.message,
        "hint": finding.hint,
    }
