"""The report of a check, as a value and as JSON."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from schemas.dataset import PackPlan
from tunery.data.findings.finding import Finding

Verdict: TypeAlias = Literal["accepted", "rejected"]


class Bin(Struct, frozen=True):
    """One bar of a histogram of row lengths.

    upto: largest length in this bin, in tokens or characters
    rows: rows that are longer than the previous bin allows
    """

    upto: int
    rows: int


class Piece(Struct, frozen=True):
    """The text of one token, or of several tokens that form one character.

    text: what it decodes to
    learnt: whether it is a label
    """

    text: str
    learnt: bool


class Sample(Struct, frozen=True):
    """The beginning of a row as the model sees it.

    row: number of the row
    pieces: its first tokens
    more: how many tokens follow
    """

    row: int
    pieces: tuple[Piece, ...]
    more: int


class TokenCounts(Struct, frozen=True):
    """Exact token counts with the tokenizer and chat template of one base model.

    tokens: of all rows, before any truncation
    trainable_tokens: tokens that are labels
    longest_row_tokens: tokens of the longest row
    rows: rendered texts; a row with two answers has two
    tokenizer_sha256: hash of the tokenizer
    template_sha256: hash of the chat template
    histogram: rows by tokens
    plans: packed rows for usual lengths and splits
    """

    tokens: int
    trainable_tokens: int
    longest_row_tokens: int
    rows: int
    tokenizer_sha256: str
    template_sha256: str
    histogram: tuple[Bin, ...]
    plans: tuple[PackPlan, ...] = ()


class CheckReport(Struct, frozen=True):
    """The result of checking one file.

    verdict: rejected when there is any error
    format: file format; None when it is not supported
    dialect: dialect of the rows; None when no row has one
    file_bytes: bytes read
    rows: all rows
    rows_with_errors: rows with at least one error
    distinct_rows: valid rows with different fingerprints
    errors, warnings: findings, at most 1,000 of each code
    counts: number of findings by code
    error_count, warning_count: number of findings by severity
    not_looked_for: kinds of content that were not checked for
    lengths: valid rows by characters
    tokens: token counts; None without a base model or a rendered row
    samples: the first rows as the model sees them
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
