"""Rows of the files in which benchmarks are published, as mappings."""

import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tunery.data.containers.reading import open_rows
from tunery.data.dialects.parsing import parse
from tunery.data.findings.finding import Finding, Note

TABLE: Final = re.compile(r"\.([ct])sv(\.gz)?$")


class RowUnreadable(ValueError):
    """Raised for a row that cannot be read; the message names the file and the row."""


def read_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield rows with their numbers. CSV files, recognised by name, may have any columns.

    columns: names for a CSV file without a header.
    Raises `RowUnreadable` for a row that cannot be read, and OSError.
    """
    table = TABLE.search(path.name)
    if table is not None:
        opener = gzip.open if table[2] else open
        delimiter = "," if table[1] == "c" else "\t"
        with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
            names = list(columns) or None
            yield from enumerate(csv.DictReader(text, names, delimiter=delimiter), 1)
        return
    with open_rows(path) as rows:
        for row in rows:
            if isinstance(row, Finding):
                if row.code == "blank_line":
                    continue
                raise RowUnreadable(f"{path.name}, row {row.row}: {row.message}. {row.hint}")
            value = parse(row.content) if isinstance(row.content, bytes) else row.content
            if isinstance(value, Note):
                finding = value.to_finding(row.number, row.line)
                raise RowUnreadable(f"{path.name}, row {row.number}: {finding.message}")
            yield row.number, value
