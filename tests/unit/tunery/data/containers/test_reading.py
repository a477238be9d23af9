"""Rows out of bytes: what is fine, what is named, what is bounded."""

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.containers import delimited, reading
from tunery.data.containers.row import Row
from tunery.data.findings.finding import Finding
from tunery.data.findings.limits import ROW_BYTES_MAX

ROW = b'{"prompt": "a", "completion": "b"}'


def read(content: bytes) -> list[Row | Finding]:
    with reading.open_rows(io.BytesIO(content)) as rows:
        return list(rows)


def test_lines_end_at_line_feeds_only() -> None:
    odd = json.dumps({"prompt": "a\u2028b\u2029c\u0085d", "completion": "e"}, ensure_ascii=False)
    items = read(b"\xef\xbb\xbf" + ROW + b"\r\n" + odd.encode() + b"\r\n" + ROW)
    assert [row.number for row in items if isinstance(row, Row)] == [1, 2, 3]
    assert items[0] == Row(1, 1, ROW)


def test_a_path_and_a_stream_give_the_same_rows(tmp_path: Path) -> None:
    content = (ROW + b"\n") * 5000
    path = tmp_path / "data.bin"
    path.write_bytes(content)
    with reading.open_rows(path) as from_path, reading.open_rows(io.BytesIO(content)) as streamed:
        assert list(from_path) == list(streamed)
        assert from_path.bytes_read == streamed.bytes_read == len(content)


def test_blank_lines_are_warned_about_and_keep_the_numbers_physical() -> None:
    items = read(ROW + b"\n\n \t\n" + ROW + b"\n")
    codes = [item.code if isinstance(item, Finding) else item.number for item in items]
    assert codes == [1, "blank_line", "blank_line", 4]


def test_a_huge_row_is_named_and_not_kept() -> None:
    huge = b'{"prompt": "' + b"x" * (ROW_BYTES_MAX + 100) + b'"}'
    first, second, third = read(ROW + b"\n" + huge + b"\n" + ROW)
    assert isinstance(second, Finding)
    assert (second.code, second.row) == ("row_too_large", 2)
    assert len(second.excerpt) <= 80
    assert isinstance(first, Row)
    assert third == Row(3, 3, ROW)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"%PDF-1.7 " + bytes(40), "unsupported_format"),
        (gzip.compress(gzip.compress(ROW)), "unsupported_format"),
        (b"PAR1" + bytes(40), "damaged_file"),
        (b"ARROW1" + bytes(40), "damaged_file"),
        (gzip.compress(ROW)[:-9], "truncated_file"),
        (b"\x1f\x8b" + bytes(40), "damaged_file"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 40, "damaged_file"),
        (b"PK\x03\x04" + bytes(40), "unsupported_format"),
        (ROW.decode().encode("utf-16"), "not_utf8"),
        (ROW.decode().encode("utf-16-le"), "not_utf8"),
        (ROW.decode().encode("utf-32"), "not_utf8"),
    ],
)
def test_files_without_rows_are_one_finding(content: bytes, code: str) -> None:
    (finding,) = read(content)
    assert isinstance(finding, Finding)
    assert (finding.code, finding.row) == (code, None)


PRETTY = b'{\n  "prompt": "a",\n  "completion": "{"\n}\n'
ZERO_INDENT = b'{\n"messages": [\n{\n"role": "user",\n"content": "a"\n}\n]\n}\n'
WRAPPED = b'{"prompt": "a",\n "completion": "b"}\n'


@pytest.mark.parametrize("spread", [PRETTY, ZERO_INDENT, WRAPPED])
def test_every_multiline_object_is_one_finding_on_its_first_line(spread: bytes) -> None:
    items = read(ROW + b"\n" + spread + ROW + b"\n" + spread)
    lines = spread.count(b"\n")
    named = [(item.code, item.row) for item in items if isinstance(item, Finding)]
    assert named == [("pretty_printed", 2), ("pretty_printed", 3 + lines)]
    assert [row.number for row in items if isinstance(row, Row)] == [1, 2 + lines]


def test_a_row_that_is_cut_off_costs_itself_only() -> None:
    cut = b'{"messages": [{"role": "user",'
    items = read(b"\n".join([ROW, cut, ROW, cut, cut, ROW]))
    assert [row.number for row in items if isinstance(row, Row)] == [1, 2, 3, 4, 5, 6]


def test_unterminated_objects_take_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[bytes] = []
    deeper = reading._opened_brackets

    def counted(line: bytes) -> int | None:
        looked.append(line)
        return deeper(line)

    monkeypatch.setattr(reading, "_opened_brackets", counted)
    items = read(b"{\n" * 10_000)
    assert [row.number for row in items if isinstance(row, Row)] == list(range(1, 10_001))
    assert len(looked) < 2 * reading.TRIES_MAX * 10_000


def test_a_multiline_object_after_a_truncated_row_is_recognised() -> None:
    items = read(b'{"messages": [{"a": [\n' + PRETTY + ROW + b"\n")
    named = [(item.code, item.row) for item in items if isinstance(item, Finding)]
    assert named == [("pretty_printed", 2)]


def test_rows_that_are_arrays_stay_rows() -> None:
    assert len(read(b'["a"]\n["b"]\n')) == 2


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.pdf"])
def test_content_tells_the_format_not_the_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(ROW)
    with reading.open_rows(path) as rows:
        assert rows.format == "jsonl"
    path.write_bytes(b"prompt,completion\na,b\n")
    with reading.open_rows(path) as rows:
        assert rows.format == "csv"


def test_rows_over_the_limit_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ROWS_MAX", 3)
    *rows, last = read((ROW + b"\n") * 10)
    assert len(rows) <= 3
    assert isinstance(last, Finding)
    assert last.code == "too_many_rows"


# --- CSV
def cells(content: bytes) -> list[dict[str, str]]:
    items = read(content)
    assert all(isinstance(item, Row) for item in items), items
    return [item.content for item in items if isinstance(item.content, dict)]  # type: ignore[union-attr]  # checked above


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_as_spreadsheets_write_it(delimiter: str, end: str) -> None:
    text = delimiter.join(("id", "Prompt", "completion")) + end
    text += delimiter.join(("1", f'"a{delimiter}b"', '"say ""hi"""')) + end
    text += delimiter.join(("2", '"two\nlines"', "")) + end
    rows = cells(b"\xef\xbb\xbf" + text.encode())
    assert rows == [
        {"id": "1", "prompt": f"a{delimiter}b", "completion": 'say "hi"'},
        {"id": "2", "prompt": "two\nlines", "completion": ""},
    ]


def test_csv_rows_are_records_and_lines_are_physical() -> None:
    content = b'prompt,completion\n"a\nb",c\nd,e,f\ng,h\n'
    first, second, third = read(content)
    assert isinstance(first, Row)
    assert isinstance(second, Finding)
    assert isinstance(third, Row)
    assert (first.number, first.line) == (1, 2)
    assert (second.code, second.row, second.line) == ("wrong_cell_count", 2, 4)
    assert (third.number, third.line) == (3, 5)


def test_a_forgotten_quote_costs_one_record() -> None:
    content = b'prompt,completion\n"a,b\nc,d\ne,f\n'
    first, *others = read(content)
    assert isinstance(first, Finding)
    assert (first.code, first.row, first.line) == ("unclosed_quote", 1, 2)
    assert [row.content for row in others if isinstance(row, Row)] == [
        {"prompt": "c", "completion": "d"},
        {"prompt": "e", "completion": "f"},
    ]


def test_a_forgotten_quote_in_a_large_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "ROW_BYTES_MAX", 1000)
    items = read(b'prompt,completion\n"a,b\n' + b"c,d\n" * 5000)
    assert isinstance(items[0], Finding)
    assert items[0].code == "unclosed_quote"
    assert sum(isinstance(item, Row) for item in items) == 5000


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"prompt,answer\na,b\n", "missing_column"),
        (b"question,answer\na,b\n", "missing_column"),
        (b"prompt,prompt,completion\na,b,c\n", "duplicate_column"),
        (b"prompt,completion\n", "header_only"),
        (b'prompt,completion\n"a"b,c\n', "stray_quote"),
        (b"prompt,completion\na,\xe9\n", "invalid_utf8"),
    ],
)
def test_csv_faults(content: bytes, code: str) -> None:
    codes = [item.code for item in read(content) if isinstance(item, Finding)]
    assert code in codes


# --- anything at all
@given(st.binary(max_size=400))
def test_any_bytes_give_rows_or_findings(content: bytes) -> None:
    assert all(isinstance(item, Row | Finding) for item in read(content))


@given(st.text(alphabet='a",;\t\n\r ', max_size=200))
def test_any_csv_gives_rows_or_findings(text: str) -> None:
    items = read(b"prompt,completion\n" + text.encode())
    numbers = [item.number if isinstance(item, Row) else item.row for item in items]
    counted = [number for number in numbers if number is not None]
    assert counted == list(range(1, len(counted) + 1))


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), min_size=1, max_size=8))
def test_quoted_csv_round_trips(rows: list[tuple[str, str]]) -> None:
    body = "".join(
        ",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows
    )
    wanted = [{"prompt": prompt, "completion": completion} for prompt, completion in rows]
    assert cells(b"prompt,completion\n" + body.encode()) == wanted
