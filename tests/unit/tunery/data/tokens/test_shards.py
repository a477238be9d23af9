"""Shards are safetensors files, with the bytes that the library itself would write."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from tunery.data.tokens.chat_renderer import Rendered
from tunery.data.tokens.shards import Document, ShardWriter
from tunery.data.tokens.tokenizer import Encoded

IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5)


def document(ids: list[int]) -> Document:
    return Document.from_tokens(Encoded(ids, b"\1" * len(ids), Rendered("", (), (), 0)))


def written(path: Path, rows: list[list[list[int]]]) -> bytes:
    writer = ShardWriter(path)
    for row in rows:
        writer.add_row([document(ids) for ids in row])
    writer.close()
    return path.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(IDS, min_size=1, max_size=3), max_size=4))
def test_the_bytes_are_those_of_the_library(tmp_path: Path, rows: list[list[list[int]]]) -> None:
    sequences = [ids for row in rows for ids in row]
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "input_ids": np.array([token for ids in sequences for token in ids], np.int32),
        "row_lengths": np.array([len(row) for row in rows], np.int32),
        "seq_lengths": np.array([len(ids) for ids in sequences], np.int32),
        "loss_mask": np.array(
            [int(index > 0) for ids in sequences for index in range(len(ids))], np.uint8
        ),
    }
    assert written(tmp_path / "shard", rows) == save(tensors)


def test_the_first_token_is_not_a_label() -> None:
    assert document([7, 8, 9]).mask == b"\0\1\1"
    assert document([7]).mask == b"\0"


def test_ids_are_written_as_little_endian() -> None:
    assert document([1, 2**31 - 1]).ids == b"\1\0\0\0\xff\xff\xff\x7f"


def test_an_id_beyond_32_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        document([2**31])


def test_rows_sequences_tokens_and_labels_are_counted(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "shard")
    writer.add_row([document([1, 2, 3]), document([4])])
    writer.add_row([document([5, 6])])
    counts = (writer.rows, writer.sequences, writer.tokens, writer.trainable_tokens)
    assert counts == (2, 3, 6, 3)
    writer.abandon()


def test_an_abandoned_shard_leaves_no_file(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "shard")
    writer.add_row([document([1])])
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_shard_without_rows_has_empty_tensors(tmp_path: Path) -> None:
    tensors = load(io.BytesIO(written(tmp_path / "shard", [])).read())
    assert {name: tensor.shape for name, tensor in tensors.items()} == dict.fromkeys(
        ("input_ids", "row_lengths", "seq_lengths", "loss_mask"), (0,)
    )
