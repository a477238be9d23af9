"""Rows of a file that can be trained on here, apart from those that cannot."""

import json
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunery.data.checking import Checker, check
from tunery.data.containers.reading import open_rows
from tunery.exit_kit.folder import write_text

REASONS_SHOWN: Final = 5


class CheckedRows(Struct, frozen=True):
    """What to upload of a file. path: None where too little is left.

    left_out: number of rows that are not in `path`
    reasons: codes of what is wrong with how many rows, most frequent first
    """

    path: Path | None
    rows: int
    left_out: int
    reasons: dict[str, int]
    dialect: str | None


def checked_rows(content: Path, data: Path) -> CheckedRows:
    """Check a file as an upload is checked; write its good rows to a file of `data` if it has bad
    ones, and what is wrong with those to a `.left-out.jsonl` beside it. Raises OSError.
    """
    report = check(content)
    counts = {code: report.counts[code] for code in {finding.code for finding in report.errors}}
    reasons = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:REASONS_SHOWN])
    if report.verdict == "accepted":
        return CheckedRows(content, report.rows, 0, {}, report.dialect)
    good = data / content.name
    partial = good.with_suffix(".part")
    rows = 0
    with open_rows(content) as opened, partial.open("wb") as target:
        for row, _ in Checker().conversations(opened):
            line = (
                row.content if isinstance(row.content, bytes) else json.dumps(row.content).encode()
            )
            target.write(line.strip() + b"\n")
            rows += 1
    findings = [
        {"row": at.row, "code": at.code, "pointer": at.pointer, "message": at.message}
        for at in report.errors
    ]
    lines = "".join(f"{json.dumps(finding, ensure_ascii=False)}\n" for finding in findings)
    write_text(good.with_suffix(".left-out.jsonl"), lines)
    partial.replace(good)
    is_enough = check(good).verdict == "accepted"
    return CheckedRows(
        good if is_enough else None, rows, report.rows - rows, reasons, report.dialect
    )
