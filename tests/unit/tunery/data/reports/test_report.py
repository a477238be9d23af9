"""The JSON of a report: what the command line prints, and what is stored."""

import msgspec
import pytest

from tunery.data.findings.finding import Finding, Note
from tunery.data.reports.report import Bin, CheckReport, TokenCounts


def report(*errors: Finding, tokens: TokenCounts | None = None) -> CheckReport:
    return CheckReport(
        verdict="rejected" if errors else "accepted",
        format="jsonl",
        dialect="chat",
        file_bytes=10,
        rows=2,
        rows_with_errors=len(errors),
        distinct_rows=2,
        errors=errors,
        warnings=(),
        counts={"b": 1, "a": 2},
        error_count=len(errors),
        warning_count=0,
        lengths=(Bin(32, 2),),
        tokens=tokens,
    )


@pytest.mark.parametrize(
    ("row", "line", "suffix"),
    [(3, 3, ""), (3, None, ""), (3, 7, " (line 7)"), (None, None, ""), (None, 2, " (line 2)")],
)
def test_a_message_has_the_line_where_it_differs_from_the_row(
    row: int | None, line: int | None, suffix: str
) -> None:
    error = Note("empty_file").to_finding(row, line)
    summary = msgspec.to_builtins(report(error).summary())
    (entry,) = summary["errors"]
    assert (entry["row"], entry["message"]) == (row, error.message + suffix)
    assert entry.keys() == {"row", "pointer", "code", "message", "hint"}


def test_a_summary_without_findings_has_empty_lists() -> None:
    summary = report().summary()
    assert (summary["verdict"], summary["errors"], summary["warnings"]) == ("accepted", [], [])
    assert summary["tokens"] is None


def test_equal_reports_have_equal_bytes_in_any_order_of_counts() -> None:
    other = msgspec.structs.replace(report(), counts={"a": 2, "b": 1})
    assert other.to_json() == report().to_json()


def test_a_report_is_read_back_from_its_json() -> None:
    whole = report(Note("empty_file", excerpt="é\U0001f600").to_finding(None, None))
    assert msgspec.json.decode(whole.to_json(), type=CheckReport) == whole
