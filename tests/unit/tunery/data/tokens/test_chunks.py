"""Chunks of rows are tokenised once, stored, and loaded by the next run."""

from pathlib import Path

import msgspec
import pytest

from tunery.data.containers.row import Row
from tunery.data.dialects.conversation import Conversation
from tunery.data.findings.finding import Collector
from tunery.data.tokens import chunks
from tunery.data.tokens.chunks import (
    ChunkTokeniser,
    SelectedRow,
    split_into_chunks,
    write_atomically,
)
from tunery.data.tokens.tokenizer import Tokenizer


def selected(number: int, answer: str = "Yo", *, validates: bool = False) -> SelectedRow:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": answer}]
    row = Row(number, number, b"{}")
    return SelectedRow(row, Conversation(messages, [False, True]), validates)


def tokeniser(
    tokenizer: Tokenizer, folder: Path, max_length: int = 512
) -> tuple[ChunkTokeniser, Collector]:
    refused = Collector()
    return ChunkTokeniser(tokenizer, max_length, "reject", folder, refused), refused


@pytest.mark.parametrize(("rows", "sizes"), [(0, []), (2, [2]), (3, [3]), (7, [3, 3, 1])])
def test_chunks_have_at_most_so_many_rows(
    rows: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 3)
    parts = list(split_into_chunks(selected(number) for number in range(rows)))
    assert [len(part) for part in parts] == sizes
    assert [each.row.number for part in parts for each in part] == list(range(rows))


def test_long_rows_end_a_chunk_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 10)
    rows = [selected(1), selected(2, "x" * 6), selected(3, "x" * 8), selected(4)]
    assert [len(part) for part in split_into_chunks(rows)] == [2, 1, 1]


def test_a_stored_chunk_is_loaded_and_not_tokenised_again(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rows = [selected(1), selected(2, validates=True)]
    first, _ = tokeniser(tokenizer, tmp_path)
    second, _ = tokeniser(tokenizer, tmp_path)
    assert first.tokenise("c", rows) == second.tokenise("c", [])
    assert (first.reused, second.reused) == (0, 1)


def test_a_damaged_chunk_is_tokenised_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"\xc1 torn")
    again, _ = tokeniser(tokenizer, tmp_path)
    assert len(again.tokenise("c", [selected(1)])) == 1
    assert again.reused == 0
    assert tokeniser(tokenizer, tmp_path)[0].tokenise("c", []) != []


def test_a_row_that_does_not_fit_is_refused_by_number_and_nothing_is_stored(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    small, refused = tokeniser(tokenizer, tmp_path, max_length=40)
    assert len(small.tokenise("c", [selected(1), selected(2, "long answer " * 40)])) == 1
    assert [(finding.row, finding.code) for finding in refused.listed] == [(2, "row_too_long")]
    assert list(tmp_path.iterdir()) == []


def test_only_rows_that_validate_have_a_prompt(tokenizer: Tokenizer, tmp_path: Path) -> None:
    make, _ = tokeniser(tokenizer, tmp_path)
    training, validation = make.tokenise("c", [selected(1), selected(2, " Yo ", validates=True)])
    assert (training.prompt, training.validates, validation.validates) == (b"", False, True)
    line = msgspec.json.decode(validation.prompt)
    assert (line["row"], line["reference"]) == (2, "Yo")
    assert tokenizer.decode(line["prompt_ids"]) == line["prompt"]
    assert line["prompt"].endswith("assistant\n")


def test_a_file_is_replaced_whole_and_leaves_no_part(tmp_path: Path) -> None:
    for content in (b"first", b""):
        write_atomically(tmp_path / "c", content)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("c", content)]
