"""Packed rows of one shard."""

from pathlib import Path

from safetensors.numpy import load_file

from tunery.data.tokens.shard_packer import ShardPacker
from tunery.data.tokens.shards import Document, ShardWriter


def document(length: int) -> Document:
    return Document(bytes(4 * length), b"\0" + b"\1" * (length - 1))


def test_a_row_that_was_ended_takes_no_more_documents(tmp_path: Path) -> None:
    path = tmp_path / "shard.safetensors"
    packer = ShardPacker(ShardWriter(path), 16)
    packer.add([document(4)], cut=False)
    packer.add([document(8)], cut=True)
    packer.end_row()
    packer.add([document(4)], cut=False)
    summary = packer.close()
    assert (summary.rows, summary.packed_rows, summary.tokens, summary.longest) == (3, 2, 16, 8)
    assert (summary.truncated, summary.trainable_tokens) == (1, 13)
    tensors = load_file(path)
    assert tensors["row_lengths"].tolist() == [2, 1]
    assert tensors["seq_lengths"].tolist() == [8, 4, 4]
