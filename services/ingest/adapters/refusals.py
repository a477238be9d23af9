"""Why a file is not accepted, in one code and sentence, as OpenAI has them.

It goes on the log, so it quotes no row: place, meaning and code of the first error.
"""

from dataclasses import dataclass
from typing import Final

from schemas import errors
from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.limits import ROWS_MAX, ROWS_MIN
from tunery.data.reports.report import CheckReport

FEW: Final = frozenset({"empty_file", "header_only", "too_few_rows"})
MANY: Final = "too_many_rows"


@dataclass(frozen=True)
class Refusal:
    code: str
    message: str


def refused(report: CheckReport, rows_max: int | None) -> Refusal:
    """Of a report with errors."""
    codes = {error.code for error in report.errors}
    if MANY in codes:
        most = ROWS_MAX if rows_max is None else min(rows_max, ROWS_MAX)
        text = f"Training file has more than {most} example(s), which is the most allowed here."
        return Refusal(errors.EXAMPLES, text)
    if codes <= FEW:
        few = f"Training file has {report.rows} example(s), but must have at least {ROWS_MIN}"
        return Refusal(errors.EXAMPLES, f"{few} examples.")
    first = min(report.errors, key=lambda error: (error.row is None, error.row or 0))
    where = "" if first.row is None else f"Example {first.row}: "
    count = f" {report.error_count} errors in all." if report.error_count > 1 else ""
    text = f"Invalid file format. {where}{CATALOGUE[first.code].meaning} ({first.code}).{count}"
    return Refusal(errors.FILE_REJECTED, text)
