"""The report of a check, as a value and as JSON."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from schemas.dataset import PackPlan
from tunery.data.findings.finding import Finding

Verdict: TypeAlias = Literal["accepted", "rejected"]


class Bin(Struct, frozen=True):
    """One bar of a histogram of row lengths."""

    upto: int  # largest length in this bin, in tokens or characters
    rows: int  # rows that are longer than the previous bin allows


class Piece(Struct, frozen=True):
    """The text of one token, or of several tokens that form one character."""

    text: str  # what it decodes to
    learnt: bool  # whether it is a label


class Sample(Struct, frozen=True):
    """The beginning of a row as the model sees it."""

    row: int  # number of the row
    pieces: tuple[Piece, ...]  # its first tokens
    more: int  # how many tokens follow


class TokenCounts(Struct, frozen=True):
    """Exact token counts with the tokenizer and chat template of one base model."""

    tokens: int  # tokens of all rows, before any truncation
    trainable_tokens: int  # tokens that are labels
    longest_row_tokens: int
    rows: int  # rendered texts; a row with two answers has two
    tokenizer_sha256: str  # hash of the tokenizer
    template_sha256: str  # hash of the chat template
    histogram: tuple[Bin, ...]  # rows by tokens
    plans: tuple[PackPlan, ...] = ()  # packed rows for usual lengths and splits


class CheckReport(Struct, frozen=True):
    """The result of checking one file."""

    verdict: Verdict  # rejected when there is any error
    format: str | None  # file format; None when it is not supported
    dialect: str | None  # dialect of the rows; None when no row has one
    file_bytes: int  # bytes read
    rows: int  # all rows
    rows_with_errors: int  # rows with at least one error
    distinct_rows: int  # valid rows with different fingerprints
    # errors, warnings: findings, at most 1,000 of each code
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    counts: dict[str, int]  # number of findings by code
    # error_count, warning_count: number of findings by severity
    error_count: int
    warning_count: int
    not_looked_for: tuple[str, ...] = ()  # kinds of content that were not checked for
    lengths: tuple[Bin, ...] = ()  # valid rows by characters
    tokens: TokenCounts | None = None  # token counts; None without a base model or a rendered row
    samples: tuple[Sample, ...] = ()  # the first rows as the model sees them

    def summary(self) -> dict[str, object]:
        """The JSON that `tunery data check --json` prints.

        Messages contain the line number where it differs from the row number.
        """
        return {
            "verdict": self.verdict,
            "rows": self.rows,
            "errors": [_entry(finding) for finding in self.errors],
            "warnings": [_entry(finding) for finding in self.warnings],
            "counts": self.counts,
            "tokens": self.tokens,
        }

    def to_json(self) -> bytes:
        """Encode the report as one JSON object, deterministically."""
        return msgspec.json.encode(self, order="deterministic")


def _entry(finding: Finding) -> dict[str, object]:
    has_other_line = finding.line is not None and finding.line != finding.row
    return {
        "row": finding.row,
        "pointer": finding.pointer,
        "code": finding.code,
        "message": f"{finding.message} (line {finding.line})"
        if has_other_line
        else finding.message,
        "hint": finding.hint,
    }
