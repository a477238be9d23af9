"""Words the rejection of a file as one code and one sentence, as OpenAI does.

The sentence goes on the log, so it quotes no row: it has the position, meaning and code of the
first error.
"""

from dataclasses import dataclass
from typing import Final

from schemas import errors
from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.limits import ROWS_MAX, ROWS_MIN
from tunery.data.reports.report import CheckReport

TOO_FEW_ROWS: Final = frozenset({"empty_file", "header_only", "too_few_rows"})
TOO_MANY_ROWS: Final = "too_many_rows"


@dataclass(frozen=True)
class FileRejection:
    """Why a file is rejected: one of `schemas.errors`, and a sentence."""

    code: str
    message: str


def file_rejection(report: CheckReport, rows_max: int | None) -> FileRejection:
    """Word the rejection of a file whose report has errors. `rows_max` is the tenant's limit."""
    codes = {error.code for error in report.errors}
    if TOO_MANY_ROWS in codes:
        limit = ROWS_MAX if rows_max is None else min(rows_max, ROWS_MAX)
        text = f"Training file has more than {limit} example(s), which is the most allowed here."
        return FileRejection(errors.EXAMPLES, text)
    if codes <= TOO_FEW_ROWS:
        count = f"Training file has {report.rows} example(s)"
        text = f"{count}, but must have at least {ROWS_MIN} examples."
        return FileRejection(errors.EXAMPLES, text)
    first = min(report.errors, key=lambda error: (error.row is None, error.row or 0))
    where = "" if first.row is None else f"Example {first.row}: "
    count = f" {report.error_count} errors in all." if report.error_count > 1 else ""
    text = f"Invalid file format. {where}{CATALOGUE[first.code].meaning} ({first.code}).{count}"
    return FileRejection(errors.FILE_REJECTED, text)
