from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tunery.data.tokens.packing import pack
from tunery.ml.packed import read_rows
from tunery.work.exits import WorkError

pytestmark = pytest.mark.train
VOCABULARY = 1000


def test_labels_follow_the_mask_and_never_start_a_document(
    make_shard: Callable[..., Path],
) -> None:
    rows = read_rows([str(make_shard([[[7], [1, 2, 3, 4]], [[5, 6]]]))], vocabulary=VOCABULARY)
    assert (len(rows), rows.row_tokens, rows.n_sequences, rows.n_labels) == (2, (5, 2), 3, 3)
    assert rows.rows[0].labels.tolist() == [-100, -100, -100, 3, 4]
    assert rows.rows[1].labels.tolist() == [-100, 6]


def test_training_m5_rows_keep_five_bytes_a_token(make_shard: Callable[..., Path]) -> None:
    """Ids and labels of 64 bits were 17 bytes a token: 5 GB for 300 million."""
    row = read_rows([str(make_shard([[list(range(100))]]))], vocabulary=VOCABULARY).rows[0]
    kept = [value for value in vars(row).values() if isinstance(value, torch.Tensor)]
    assert sum(tensor.nbytes for tensor in kept) == 5 * 100


def test_a_batch_restarts_positions_and_has_no_mask(make_shard: Callable[..., Path]) -> None:
    rows = read_rows([str(make_shard([[[7, 8], [1, 2, 3]], [[5, 6]]]))], vocabulary=VOCABULARY)
    batch = rows.batch([1, 0])
    assert batch.keys() == {"input_ids", "labels", "position_ids"}
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1, 2], [0, 1, 0, 1, 2]]
    assert batch["input_ids"].tolist() == [[5, 6, 0, 0, 0], [7, 8, 1, 2, 3]]
    assert batch["labels"][0].tolist() == [-100, 6, -100, -100, -100]


def test_shards_follow_each_other(make_shard: Callable[..., Path]) -> None:
    paths = [str(make_shard([[[1, 2]]], "a")), str(make_shard([[[3, 4]], [[5, 6]]], "b"))]
    rows = read_rows(paths, vocabulary=VOCABULARY)
    assert [row.input_ids.tolist() for row in rows.rows] == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("name", "tensor", "what"),
    [
        ("input_ids", torch.tensor([1, 2, VOCABULARY], dtype=torch.int32), "token ids outside"),
        ("input_ids", torch.tensor([1, -2, 3], dtype=torch.int32), "token ids outside"),
        ("input_ids", torch.tensor([1, 2], dtype=torch.int32), "lengths do not add up"),
        ("loss_mask", torch.tensor([1], dtype=torch.uint8), "lengths do not add up"),
        ("seq_lengths", torch.tensor([3, 0], dtype=torch.int32), "lengths do not add up"),
        ("row_lengths", torch.tensor([2], dtype=torch.int32), "lengths do not add up"),
        ("row_lengths", torch.tensor([1, 0], dtype=torch.int32), "a length below 1"),
        ("loss_mask", torch.tensor([1, 1, 1]), "tensor 'loss_mask' is torch.int64"),
    ],
)
def test_what_is_wrong_with_a_shard_is_named(
    make_shard: Callable[..., Path], name: str, tensor: torch.Tensor, what: str
) -> None:
    path = make_shard([[[1, 2, 3]]])
    save_file({**load_file(path), name: tensor}, path)
    with pytest.raises(WorkError) as caught:
        read_rows([str(path)], vocabulary=VOCABULARY)
    assert caught.value.cause == "bad_data"
    assert f"train.safetensors: {what}" in caught.value.message


def test_a_missing_tensor_a_damaged_file_and_no_rows_are_named(
    make_shard: Callable[..., Path],
) -> None:
    path = make_shard([[[1, 2, 3]]])
    tensors = load_file(path)
    save_file({name: tensors[name] for name in tensors if name != "seq_lengths"}, path)
    with pytest.raises(WorkError, match="'seq_lengths' is missing"):
        read_rows([str(path)], vocabulary=VOCABULARY)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(WorkError, match="cannot be read"):
        read_rows([str(path)], vocabulary=VOCABULARY)
    with pytest.raises(WorkError, match="holds no rows"):
        read_rows([], vocabulary=VOCABULARY)


def test_training_m6_a_sample_has_documents_of_all_lengths(
    make_shard: Callable[..., Path],
) -> None:
    """Rows are packed with the longest documents first, so the first rows have only these."""
    lengths = [2 + number % 99 for number in range(990)]
    packed = pack(lengths, 100).rows()
    path = make_shard([[list(range(1, lengths[n] + 1)) for n in row] for row in packed])
    rows = read_rows([str(path)], vocabulary=VOCABULARY)
    everything = sum(lengths) / len(lengths)
    sample = rows.sample(32)
    mean = sum(sample.row_tokens) / sample.n_sequences
    assert len(sample) == 32
    assert abs(mean - everything) < 15
    assert sum(rows.row_tokens[:32]) / sum(len(row.lengths) for row in rows.rows[:32]) > 70
    assert rows.sample(10_000).row_tokens == rows.row_tokens
