"""Every container gives the same rows; damaged files and decompression bombs are named."""

import gzip
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from tunery.data.checking import check
from tunery.data.containers import columnar, compression, json_array
from tunery.data.containers.reading import Source, open_rows
from tunery.data.containers.row import Row
from tunery.data.findings import limits
from tunery.data.findings.finding import Finding

VALUES: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "user", "content": f'Ask [{n}] "{{" \\ \u2028 é?'},
            {"role": "assistant", "content": f"Answer {n}.\nYes."},
        ]
    }
    for n in range(1, 101)
]


def jsonl() -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in VALUES)


def array(indent: int | None = None) -> bytes:
    return json.dumps(VALUES, indent=indent, ensure_ascii=False).encode()


def table() -> Any:
    return pa.Table.from_pylist(VALUES)


def parquet_file() -> bytes:
    out = io.BytesIO()
    parquet.write_table(table(), out, row_group_size=30)
    return out.getvalue()


def arrow(start: Callable[..., Any]) -> bytes:
    out = io.BytesIO()
    with start(out, table().schema) as writer:
        writer.write_table(table(), max_chunksize=30)
    return out.getvalue()


def zstd(content: bytes) -> bytes:
    packed: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return packed


FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "jsonl": ("jsonl", jsonl),
    "array": ("json", array),
    "indented array": ("json", lambda: array(2)),
    "array with a mark": ("json", lambda: b"\xef\xbb\xbf \r\n" + array(1)),
    "parquet": ("parquet", parquet_file),
    "arrow file": ("arrow", lambda: arrow(ipc.new_file)),
    "arrow stream": ("arrow", lambda: arrow(ipc.new_stream)),
    "gzip": ("jsonl", lambda: gzip.compress(jsonl())),
    "gzip of two": ("jsonl", lambda: gzip.compress(jsonl()[:999]) + gzip.compress(jsonl()[999:])),
    "zstd": ("jsonl", lambda: zstd(jsonl())),
    "gzip of an array": ("json", lambda: gzip.compress(array(4))),
    "gzip of parquet": ("parquet", lambda: gzip.compress(parquet_file())),
    "zstd of arrow": ("arrow", lambda: zstd(arrow(ipc.new_file))),
}


@cache
def file_content(name: str) -> bytes:
    return FILES[name][1]()


def values(source: Source) -> list[Any]:
    with open_rows(source) as rows:
        items = list(rows)
    assert all(isinstance(item, Row) for item in items), items
    numbers = [item.number for item in items if isinstance(item, Row)]
    assert numbers == list(range(1, len(items) + 1))
    return [
        json.loads(item.content) if isinstance(item.content, bytes) else item.content
        for item in items
        if isinstance(item, Row)
    ]


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    form, _ = FILES[name]
    path = tmp_path / "upload.bin"
    path.write_bytes(file_content(name))
    assert values(path) == VALUES
    assert values(io.BytesIO(file_content(name))) == VALUES
    report = check(path)
    assert (report.format, report.dialect, report.verdict) == (form, "chat", "accepted")
    assert report.rows == len(VALUES)
    assert report.file_bytes == path.stat().st_size


def test_folders_of_datasets_are_read_by_their_split(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["test", "train"]}')
    train = tmp_path / "train"
    train.mkdir()
    names = [f"data-0000{n}-of-00002.arrow" for n in (0, 1)]
    for name in names:
        (train / name).write_bytes(arrow(ipc.new_stream))
    state = {"_data_files": [{"filename": name} for name in names]}
    (train / "state.json").write_text(json.dumps(state))
    assert values(tmp_path) == VALUES + VALUES
    assert check(tmp_path).format == "folder"


def test_folders_of_hubs_are_read_by_their_train_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "test-00000-of-00001.parquet").write_bytes(b"not looked at")
    (data / "train-00000-of-00001.parquet").write_bytes(parquet_file())
    assert values(tmp_path) == VALUES


def test_a_folder_without_rows_is_named(tmp_path: Path) -> None:
    assert [e.code for e in check(tmp_path).errors] == ["unsupported_format"]


def test_rows_of_tables_are_checked_by_the_same_rules() -> None:
    rows = [{"prompt": f"Question {n}?", "completion": f"Answer {n}."} for n in range(11)]
    rows[4]["completion"] = " "
    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), out)
    (error,) = check(io.BytesIO(out.getvalue())).errors
    assert (error.code, error.row, error.line) == ("content_empty", 5, None)


def test_a_jsonl_name_on_an_array_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(array()))
    report = check(path)
    assert (report.verdict, report.counts) == ("accepted", {"json_array": 1})


# --- damage
@pytest.mark.parametrize("name", ["gzip", "zstd", "parquet", "arrow file", "gzip of parquet"])
@pytest.mark.parametrize("share", [30, 60, 99])
def test_cut_files_are_rejected_by_name(name: str, share: int) -> None:
    whole = file_content(name)
    report = check(io.BytesIO(whole[: len(whole) * share // 100]))
    assert report.verdict == "rejected"
    assert {e.code for e in report.errors if e.row is None} & {"truncated_file", "damaged_file"}


def test_security_l9_a_damaged_frame_of_zstd_is_a_finding(tmp_path: Path) -> None:
    """The check ended with `ValueError: I/O operation on closed file`."""
    path = tmp_path / "rows"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\x00\x00" * 100)  # a window of 2 GB
    report = check(path)
    assert [error.code for error in report.errors] == ["damaged_file"]
    assert report.verdict == "rejected"


@given(name=st.sampled_from(sorted(FILES)), at=st.integers(0, 10_000), byte=st.binary(max_size=2))
def test_any_damage_gives_a_report(name: str, at: int, byte: bytes) -> None:
    whole = file_content(name)
    at %= len(whole)
    report = check(io.BytesIO(whole[:at] + byte + whole[at + 1 :]))
    assert (report.verdict == "accepted") == (report.error_count == 0)


def test_a_bomb_is_left_early(monkeypatch: pytest.MonkeyPatch) -> None:
    free = limits.UNPACKED_FREE_BYTES // 4
    monkeypatch.setattr(compression, "UNPACKED_FREE_BYTES", free)
    bomb = gzip.compress(b"\0" * (2 * free), compresslevel=1)
    report = check(io.BytesIO(b"".join([bomb] * 3)))
    assert "decompression_bomb" in report.counts or "not_utf8" in report.counts
    spaces = gzip.compress(b'{"prompt": "' + b" " * (2 * free), compresslevel=1)
    report = check(io.BytesIO(spaces))
    assert report.counts["decompression_bomb"] == 1
    assert report.rows <= 1


def test_text_that_packs_well_is_no_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "UNPACKED_FREE_BYTES", 1000)
    assert check(io.BytesIO(gzip.compress(jsonl()))).verdict == "accepted"


# --- arrays
def elements(content: bytes) -> list[Row | Finding]:
    return list(json_array.elements(io.BytesIO(content)))


@given(
    st.lists(
        st.recursive(
            st.text() | st.integers(),
            lambda x: st.lists(x) | st.dictionaries(st.text(), x),
            max_leaves=20,
        )
    ),
    st.integers(1, 7),
    st.sampled_from([None, 0, 2]),
)
def test_elements_are_found_wherever_chunks_end(
    rows: list[Any], size: int, indent: int | None
) -> None:
    class Slow(io.BytesIO):
        def read(self, _: int | None = -1) -> bytes:
            return super().read(size)

    content = json.dumps(rows, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    stream = Slow(content)
    items = list(json_array.elements(stream))
    contents = [item.content for item in items if isinstance(item, Row)]
    assert contents == [row.content for row in elements(content) if isinstance(row, Row)]
    assert len(items) == len(rows)
    assert [json.loads(raw) for raw in contents if isinstance(raw, bytes)] == json.loads(content)


def test_one_bad_element_does_not_end_the_others() -> None:
    content = b'[\n{"a": 1},\n{"a": NaN, "b": [}],\n{"a": "no end},\n{"a": 4}\n]\n'
    items = elements(content)
    assert [(item.number, item.line) for item in items if isinstance(item, Row)] == [
        (1, 2),
        (2, 3),
        (3, 4),
        (4, 5),
    ]


@pytest.mark.parametrize(
    ("content", "code", "row"),
    [
        (b'[{"a": 1}', "truncated_json", None),
        (b'[{"a": 1},]', "trailing_comma", 2),
        (b'[{"a": 1},, {"b": 1}]', "trailing_comma", 2),
        (b'[{"a": 1}] {"b": 1}', "invalid_json", None),
    ],
)
def test_faults_between_elements(content: bytes, code: str, row: int | None) -> None:
    named = [(item.code, item.row) for item in elements(content) if isinstance(item, Finding)]
    assert named == [(code, row)]


def test_a_huge_element_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "ROW_BYTES_MAX", 100)
    first, second, third = elements(b'[{"a": 1}, {"a": "' + b"x" * 200 + b'"}, {"a": 3}]')
    assert isinstance(second, Finding)
    assert (second.code, second.row) == ("row_too_large", 2)
    assert isinstance(first, Row)
    assert third == Row(3, 1, b'{"a": 3}')


# --- tables
def repeated(chars: int, rows: int) -> bytes:
    """A table whose rows share one value, so that the file is tiny."""
    value = pa.DictionaryArray.from_arrays([0] * rows, ["x" * chars])
    columns = {"prompt": value, "completion": pa.array(["Yes, it is."] * rows)}
    out = io.BytesIO()
    parquet.write_table(pa.table(columns), out, compression="zstd")
    return out.getvalue()


def test_a_table_of_repeats_is_no_way_around_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "UNPACKED_FREE_BYTES", 4 * limits.MIB)
    bomb = repeated(chars=limits.MIB, rows=100)
    assert len(bomb) < 5000
    report = check(io.BytesIO(bomb))
    assert report.counts["decompression_bomb"] == 1
    assert report.rows <= 4


def written(rows: list[dict[str, Any]], **options: Any) -> bytes:
    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), out, **options)
    return out.getvalue()


def test_repeats_inside_lists_stay_shared_until_their_row() -> None:
    """Given 100 rows of 40 messages that share 1 MiB, when read, then little memory is taken."""
    texts = pa.DictionaryArray.from_arrays([0] * 4_000, ["x" * limits.MIB])
    messages = pa.StructArray.from_arrays([["user"] * 4_000, texts], ["role", "content"])
    rows = pa.ListArray.from_arrays(range(0, 4_001, 40), messages)
    out = io.BytesIO()
    parquet.write_table(pa.table({"messages": rows}), out, compression="zstd")
    usual, counted = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(counted)
    try:
        report = check(io.BytesIO(out.getvalue()))
    finally:
        pa.set_memory_pool(usual)
    assert report.counts["decompression_bomb"] == 1
    assert report.counts["row_too_large"] == 1
    assert counted.max_memory() < 50 * limits.MIB


def test_numbers_that_pack_too_well_are_refused_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columnar, "UNPACKED_FREE_BYTES", limits.UNPACKED_FREE_BYTES // 8)
    numbers = pa.ListArray.from_arrays([0, 2_000_000], np.full(2_000_000, 7))
    out = io.BytesIO()
    parquet.write_table(pa.table({"text": ["a"], "ids": numbers}), out)
    report = check(io.BytesIO(out.getvalue()))
    assert (report.rows, report.counts["decompression_bomb"]) == (0, 1)
    assert "a row group of 16,000,0" in report.errors[0].message


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_other_encodings_of_text_are_read(encoding: str) -> None:
    rows = [{"prompt": f"Question {n}?", "completion": f"Answer {n}."} for n in range(300)]
    assert values(io.BytesIO(written(rows, use_dictionary=False, column_encoding=encoding))) == rows


def test_text_in_lists_that_may_become_anything_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columnar, "UNPACKED_FREE_BYTES", limits.UNPACKED_FREE_BYTES // 8)
    rows = [{"tags": [f"{'x' * 100_000}{n}" for n in range(125)]}]
    content = written(rows, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY")
    report = check(io.BytesIO(content))
    assert (report.rows, report.counts["decompression_bomb"]) == (0, 1)
    assert "tags.list.element is in lists" in report.errors[0].message
    assert "DELTA_BYTE_ARRAY; write it as PLAIN" in report.errors[0].message


@pytest.mark.parametrize("group_rows", [7, 60, 1_000])
def test_lists_of_texts_in_groups(group_rows: int) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"{n % 5} {k}"} for k in range(n % 4)]}
        for n in range(200)
    ]
    assert values(io.BytesIO(written(rows, row_group_size=group_rows))) == rows


def test_a_huge_row_of_a_table_costs_itself_only() -> None:
    rows = [{"prompt": f"Question {n}?", "completion": f"Answer {n}."} for n in range(20)]
    rows[7]["completion"] = "".join(map(str, range(1_400_000)))
    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), out)
    report = check(io.BytesIO(out.getvalue()))
    assert [(e.code, e.row) for e in report.errors] == [("row_too_large", 8)]
    assert report.rows == 20


def test_tables_of_structs_and_many_groups() -> None:
    rows = [
        {
            "prompt": "Who?" * (n % 3 + 1),
            "chosen": {"role": "assistant", "content": f"Me {n}."},
            "rejected": {"role": "assistant", "content": "You."},
        }
        for n in range(60)
    ]
    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), out, row_group_size=7)
    report = check(io.BytesIO(out.getvalue()))
    assert (report.errors, report.dialect, report.rows) == ((), "dpo", 60)
    assert values(io.BytesIO(out.getvalue())) == rows
