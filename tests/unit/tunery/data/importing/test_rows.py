"""Rows of published files."""

import gzip
from pathlib import Path

import pytest

from tunery.data.importing.rows import RowUnreadable, read_rows


def test_tables_have_names_in_their_first_line_or_given_ones(tmp_path: Path) -> None:
    named, plain = tmp_path / "named.csv", tmp_path / "plain.tsv.gz"
    named.write_text('a,b\n1,"x, y"\n')
    plain.write_bytes(gzip.compress(b"1\t2\n"))
    assert list(read_rows(named)) == [(1, {"a": "1", "b": "x, y"})]
    assert list(read_rows(plain, ("c", "d"))) == [(1, {"c": "1", "d": "2"})]


def test_a_row_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(RowUnreadable, match=r"rows\.jsonl, row 3"):
        list(read_rows(path))
