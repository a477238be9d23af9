"""Benchmarks from an operator's files: what question and answer are, and what is said when not."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunery.data.screening import benchmarks
from tunery.data.screening.benchmarks import BenchmarkUnusable, read_item

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("row", "item"),
    [
        ({"question": "Q?", "choices": ["a", "b"], "answer": 1}, ("Q?", "b")),
        ({"query": "Question: Q?", "choices": ["a", "b"], "gold": 0}, ("Q?", "a")),
        ({"ctx": "He", "endings": ["runs", "sits"], "label": "1"}, ("He", "sits")),
        (
            {"question": "Q?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}}
            | {"answerKey": "B"},
            ("Q?", "y"),
        ),
        ({"sentence": "_ ran", "option1": "Jo", "option2": "Al", "answer": "2"}, ("_ ran", "Al")),
        ({"Question": "Q?", "Best Answer": "So."}, ("Q?", "So.")),
        ({"prompt": "def f():", "canonical_solution": "return 1"}, ("def f():", "return 1")),
        ({"problem": "2 + 2", "solution": "4"}, ("2 + 2", "4")),
        ({"question": "Q?"}, ("Q?", "")),
        ({"foo": "Q?"}, None),
    ],
)
def test_question_and_answer(row: dict[str, Any], item: tuple[str, str] | None) -> None:
    assert read_item(row) == item


def test_named_keys_come_first() -> None:
    row = {"question": "Q?", "stem": "S?", "answer": "A", "reply": "R"}
    assert read_item(row, "stem", "reply") == ("S?", "R")


def test_added_listed_loaded_removed(tmp_path: Path, write: Write) -> None:
    store = tmp_path / "store"
    rows = write([{"question": "One?", "answer": "1"}, {"question": "Two?", "answer": "2"}])
    table = tmp_path / "more.csv.gz"
    table.write_bytes(gzip.compress(b'\xef\xbb\xbfQuestion,Best Answer\n"Three, or?",3\n'))
    head = benchmarks.add(store, "numbers", [rows, table])
    assert head.items == 3
    assert benchmarks.read_headers(store) == [head]
    assert [(item.source, item.question, item.answer) for item in benchmarks.load(store)] == [
        ("rows.jsonl:1", "One?", "1"),
        ("rows.jsonl:2", "Two?", "2"),
        ("more.csv.gz:1", "Three, or?", "3"),
    ]
    assert benchmarks.load(store, ["numbers"]) == benchmarks.load(store)
    benchmarks.remove(store, "numbers")
    assert benchmarks.read_headers(store) == []


def test_added_again_replaces(tmp_path: Path, write: Write) -> None:
    for question in ("Old?", "New?"):
        benchmarks.add(tmp_path / "store", "one", [write([{"question": question}])])
    assert [item.question for item in benchmarks.load(tmp_path / "store")] == ["New?"]


def test_errors_name_file_and_row(tmp_path: Path, write: Write) -> None:
    store = tmp_path / "store"
    with pytest.raises(BenchmarkUnusable, match=r"rows\.jsonl, row 2: none of the keys foo"):
        benchmarks.add(store, "one", [write([{"question": "Q?"}, {"foo": 1}])])
    with pytest.raises(BenchmarkUnusable, match="row 1"):
        benchmarks.add(store, "one", [write([b'{"question": '])])
    with pytest.raises(BenchmarkUnusable, match="not a valid benchmark name"):
        benchmarks.add(store, "../one", [write([{"question": "Q?"}])])
    with pytest.raises(BenchmarkUnusable, match="no benchmark 'two'"):
        benchmarks.load(store, ["two"])
    with pytest.raises(BenchmarkUnusable, match="no benchmark"):
        benchmarks.remove(store, "two")
    assert benchmarks.read_headers(store) == []


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(json.dumps({"name": "one", "sources": []}) + "\n{")
    with pytest.raises(BenchmarkUnusable, match="damaged"):
        benchmarks.load(tmp_path)
