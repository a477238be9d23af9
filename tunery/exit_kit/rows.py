"""Rows of a file that can be trained on here, apart from those that cannot."""

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunery.data.checking import Checker, check
from tunery.data.containers.reading import open_rows
from tunery.data.containers.row import Row
from tunery.data.tokens.chunks import write_atomically

REASONS_SHOWN: Final = 5
DIVIDED_MIN: Final = 50  # rows of a file from which some are held out
HELD_OUT_MIN: Final = 10  # of these; a file with fewer rows is refused
HELD_OUT_MAX: Final = 64
HELD_OUT_SHARE: Final = 10  # one row in so many


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
            target.write(_line(row))
            rows += 1
    findings = [
        {"row": at.row, "code": at.code, "pointer": at.pointer, "message": at.message}
        for at in report.errors
    ]
    lines = "".join(f"{json.dumps(finding, ensure_ascii=False)}\n" for finding in findings)
    write_atomically(good.with_suffix(".left-out.jsonl"), lines.encode())
    partial.replace(good)
    is_enough = check(good).verdict == "accepted"
    return CheckedRows(
        good if is_enough else None, rows, report.rows - rows, reasons, report.dialect
    )


def divided_rows(content: Path, data: Path) -> tuple[Path, Path] | None:
    """Divide good rows into those to train on and those to compare models by; None: too few.

    Rows that begin alike stay together, so that no question that was trained on is asked. The same
    file is always divided alike. Raises OSError.
    """
    groups: dict[bytes, list[int]] = {}
    count = 0
    with open_rows(content) as opened:
        for _, conversation in Checker().conversations(opened):
            asked = json.dumps(conversation.messages[:-1], default=str, sort_keys=True)
            groups.setdefault(blake2b(asked.encode(), digest_size=16).digest(), []).append(count)
            count += 1
    if count < DIVIDED_MIN:
        return None
    wanted = max(HELD_OUT_MIN, min(HELD_OUT_MAX, count // HELD_OUT_SHARE))
    held_out: set[int] = set()
    for digest in sorted(groups):
        if len(held_out) < wanted and len(groups[digest]) <= wanted:
            held_out.update(groups[digest])
    if not HELD_OUT_MIN <= len(held_out) <= count - HELD_OUT_MIN:
        return None
    paths = data / f"{content.stem}.training.jsonl", data / f"{content.stem}.held-out.jsonl"
    partial = [path.with_suffix(".part") for path in paths]
    with open_rows(content) as opened, partial[0].open("wb") as rest, partial[1].open("wb") as few:
        for number, (row, _) in enumerate(Checker().conversations(opened)):
            (few if number in held_out else rest).write(_line(row))
    for part, path in zip(partial, paths, strict=True):
        part.replace(path)
    return paths


def _line(row: Row) -> bytes:
    content = row.content if isinstance(row.content, bytes) else json.dumps(row.content).encode()
    return content.strip() + b"\n"


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a file of rows completely or not at all. Raises OSError."""
    lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    write_atomically(path, lines.encode())
