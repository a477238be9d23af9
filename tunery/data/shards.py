"""Packed rows as one safetensors file, written in a stream: memory does not grow with the data.

Tensors: `input_ids` int32 [tokens], `loss_mask` uint8 [tokens] (1: a label), `seq_lengths` int32
[sequences], `row_lengths` int32 [packed rows] (sequences in each). The bytes are those that
`safetensors.serialize` would write.
"""

import json
import os
import shutil
import sys
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunery.data.limits import MIB
from tunery.data.rendering import Encoded

ALIGNMENT: Final = 8
# name, dtype, bytes of one element; in the order safetensors lays them out
TENSORS: Final = (
    ("input_ids", "I32", 4),
    ("row_lengths", "I32", 4),
    ("seq_lengths", "I32", 4),
    ("loss_mask", "U8", 1),
)


@dataclass(frozen=True, slots=True)
class Document:
    """One sequence: ids as int32, and one mask byte per token. Its first token is no label."""

    ids: "array[int]"
    mask: bytes

    @classmethod
    def of(cls, tokens: Encoded) -> "Document":
        return cls(array("i", tokens.ids), b"\0" + tokens.mask[1:])


class ShardWriter:
    """Collects rows in spool files beside `path`; `close` joins them into it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._spools = {name: tempfile.TemporaryFile(dir=path.parent) for name, _, _ in TENSORS}  # noqa: SIM115  # closed in close()
        self.rows = self.sequences = self.tokens = self.trainable_tokens = 0

    def add_row(self, documents: Sequence[Document]) -> None:
        """Append one packed row."""
        self.rows += 1
        self._write("row_lengths", array("i", [len(documents)]))
        for document in documents:
            self.sequences += 1
            self.tokens += len(document.mask)
            self.trainable_tokens += document.mask.count(1)
            self._write("seq_lengths", array("i", [len(document.mask)]))
            self._write("input_ids", document.ids)
            self._spools["loss_mask"].write(document.mask)

    def close(self) -> None:
        """Write the file, through to the disk."""
        try:
            with self._path.open("wb") as out:
                out.write(self._header())
                for name, _, _ in TENSORS:
                    self._spools[name].seek(0)
                    shutil.copyfileobj(self._spools[name], out, MIB)
                out.flush()
                os.fsync(out.fileno())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Forget the rows; harmless after `close`."""
        for spool in self._spools.values():
            spool.close()

    def _write(self, name: str, numbers: "array[int]") -> None:
        if sys.byteorder == "big":
            numbers = array("i", numbers)
            numbers.byteswap()
        self._spools[name].write(numbers.tobytes())

    def _header(self) -> bytes:
        header: dict[str, object] = {}
        start = 0
        for name, dtype, size in TENSORS:
            end = start + self._spools[name].tell()
            shape = [(end - start) // size]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
            start = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % ALIGNMENT)
        return len(text).to_bytes(8, "little") + text
