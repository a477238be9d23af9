"""The reason of a rejected file: a position and a code, never the words of a row."""

import pytest

from schemas import errors
from schemas.reasons import rejecting
from services.ingest.adapters.worker import file_rejection
from tunery.data.findings.finding import Finding, Note
from tunery.data.findings.limits import ROWS_MAX
from tunery.data.reports.report import CheckReport


def error(code: str, row: int | None = None) -> Finding:
    return Note(code, detail="a secret word", excerpt="a secret word").to_finding(row, row)


def report(*listed: Finding, rows: int = 3, count: int | None = None) -> CheckReport:
    return CheckReport(
        verdict="rejected",
        format="jsonl",
        dialect=None,
        file_bytes=1,
        rows=rows,
        rows_with_errors=1,
        distinct_rows=0,
        errors=listed,
        warnings=(),
        counts={},
        error_count=len(listed) if count is None else count,
        warning_count=0,
    )


@pytest.mark.parametrize("code", ["empty_file", "header_only", "too_few_rows"])
def test_too_few_rows_are_counted_as_openai_does(code: str) -> None:
    rejection = file_rejection(report(error(code), rows=7), None)
    assert rejection.code == errors.EXAMPLES
    assert rejection.reason == rejecting("rows_too_few", rows=7, limit=10)


@pytest.mark.parametrize(
    ("rows_max", "limit"), [(None, ROWS_MAX), (50, 50), (ROWS_MAX + 1, ROWS_MAX)]
)
def test_too_many_rows_name_the_lowest_limit(rows_max: int | None, limit: int) -> None:
    rejection = file_rejection(report(error("too_many_rows")), rows_max)
    assert rejection.code == errors.EXAMPLES
    assert rejection.reason == rejecting("rows_too_many", limit=limit)


def test_the_first_row_is_named_before_the_whole_file() -> None:
    rejection = file_rejection(
        report(error("too_few_rows"), error("invalid_json", 5), error("invalid_json", 2)), None
    )
    assert rejection.code == errors.FILE_REJECTED
    assert rejection.reason == rejecting("row_invalid", row=2, finding="invalid_json", errors=3)


def test_a_single_error_is_not_counted_and_no_row_is_quoted() -> None:
    rejection = file_rejection(report(error("invalid_json", 1)), None)
    assert rejection.reason == rejecting("row_invalid", row=1, finding="invalid_json", errors=1)
    assert "secret" not in str(rejection)


def test_an_error_of_the_whole_file_has_no_position() -> None:
    rejection = file_rejection(report(error("invalid_json"), count=1_500), None)
    assert rejection.reason == rejecting("file_invalid", finding="invalid_json", errors=1_500)
