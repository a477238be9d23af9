"""Rows as a base model sees them, without a process around it."""

from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import LengthPolicy
from services.gateway.files.domain.preview_tasks import (
    Comparison,
    ComparisonAnswer,
    PreviewAnswer,
    RefusedTask,
)
from services.gateway.files.preview_worker import answer
from tests.unit.services.gateway.files.test_previews import task
from tests.unit.services.ingest.base import make_base, rows


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path / "base")


def shown(content: bytes, base: Path, **asked: Any) -> PreviewAnswer:
    file = base.parent / "rows"
    file.write_bytes(content)
    result = answer(task(file, base, **asked))
    assert isinstance(result, PreviewAnswer)
    return result


def test_a_row_is_cut_where_training_would_cut_it(base: Path) -> None:
    (row,) = shown(rows(1), base, max_length=5).data
    assert (len(row.token_ids), row.truncated) == (5, True)
    assert row.tokens > 5


def test_a_text_is_split_where_training_would_split_it(base: Path) -> None:
    text = b'{"text": "' + b"A lamp at sea. " * 8 + b'"}\n'
    data = shown(text, base, max_length=20, length_policy="split").data
    parts = data[0].parts
    assert [(row.row, row.part) for row in data] == [(1, number + 1) for number in range(parts)]
    assert parts > 1
    assert sum(row.trainable_tokens for row in data) == data[0].tokens - 1
    assert not any(row.truncated for row in data)


@pytest.mark.parametrize(
    ("policy", "codes"),
    [
        ("reject", {"row_too_long"}),
        ("truncate", {"no_trainable_token"}),
        ("split", {"split_not_text"}),
    ],
)
def test_rows_that_training_would_refuse_are_reported_as_problems(
    base: Path, policy: LengthPolicy, codes: set[str]
) -> None:
    result = shown(rows(1), base, max_length=5, length_policy=policy)
    assert [len(row.token_ids) for row in result.data[:1]] == [5]
    problems = {problem.code for problem in result.problems}
    assert codes <= problems if policy == "split" else codes == problems


def test_a_file_with_fewer_rows_than_asked_for_is_shown_whole(base: Path) -> None:
    result = shown(rows(2), base, rows=20)
    assert [row.row for row in result.data] == [1, 2]
    assert not any(row.truncated for row in result.data)


def test_a_base_without_a_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(rows(1))
    result = answer(task(file, tmp_path))
    assert isinstance(result, RefusedTask)
    assert result.param == "model"


def test_two_files_are_compared_row_by_row(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_bytes(rows(4))
    after.write_bytes(rows(3))
    result = answer(Comparison(before=str(before), after=str(after)))
    assert isinstance(result, ComparisonAnswer)
    counts = result.difference
    assert (counts["same"], list(counts["added"]), list(counts["removed"])) == (3, [], [4])
