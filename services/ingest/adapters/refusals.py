"""Names the rejection of a file by one code and one reason, as OpenAI words one sentence.

The reason goes on the log, so it quotes no row: it has the position and the code of the first
error.
"""

from typing import Final

from schemas import errors
from schemas.envelope import Reason
from schemas.reasons import Failure, rejecting
from tunery.data.findings.limits import ROWS_MAX, ROWS_MIN
from tunery.data.reports.report import CheckReport

TOO_FEW_ROWS: Final = frozenset({"empty_file", "header_only", "too_few_rows"})
TOO_MANY_ROWS: Final = "too_many_rows"


def file_rejection(report: CheckReport, rows_max: int | None) -> Failure:
    """Why a file is rejected whose report has errors. `rows_max` is the tenant's limit."""
    codes = {error.code for error in report.errors}
    if TOO_MANY_ROWS in codes:
        limit = ROWS_MAX if rows_max is None else min(rows_max, ROWS_MAX)
        return Failure(code=errors.EXAMPLES, reason=rejecting("rows_too_many", limit=limit))
    if codes <= TOO_FEW_ROWS:
        few = rejecting("rows_too_few", rows=report.rows, limit=ROWS_MIN)
        return Failure(code=errors.EXAMPLES, reason=few)
    return Failure(code=errors.FILE_REJECTED, reason=_first_error(report))


def _first_error(report: CheckReport) -> Reason:
    first = min(report.errors, key=lambda error: (error.row is None, error.row or 0))
    if first.row is None:
        return rejecting("file_invalid", finding=first.code, errors=report.error_count)
    return rejecting("row_invalid", row=first.row, finding=first.code, errors=report.error_count)
