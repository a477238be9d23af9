"""Writes packed rows as one safetensors file, as a stream: memory does not grow with the data.

Tensors: `input_ids` int32 [tokens], `loss_mask` uint8 [tokens] (1 for a label), `seq_lengths` int32
[sequences], and `row_lengths` int32 [packed rows], the number of sequences in each row. Where rows
are pairs of answers there is `seq_roles` uint8 [sequences], too: 1 for the preferred answer, 2 for
the other one, which follows it in the same packed row; where each answer has a label, 3 for a true
and 4 for a false one. Of prompts, 5, the last token is the label, and `item_bytes` uint8 has what a
grader reads of each, as JSON, of `item_lengths` int32 [sequences] bytes. The bytes are the same as
those of the function "serialize" of the library safetensors.
"""

import json
import os
import shutil
import sys
import tempfile
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunery.data.findings.limits import MIB
from tunery.data.tokens.tokenizer import Encoded

ALIGNMENT: Final = 8
# name, dtype, bytes of one element; in the order of the safetensors layout
TENSORS: Final = (
    ("input_ids", "I32", 4),
    ("item_lengths", "I32", 4),
    ("row_lengths", "I32", 4),
    ("seq_lengths", "I32", 4),
    ("item_bytes", "U8", 1),
    ("loss_mask", "U8", 1),
    ("seq_roles", "U8", 1),
)
OPTIONAL: Final = ("item_lengths", "item_bytes", "seq_roles")  # not there where they are empty
ANSWER: Final = 0  # role of a sequence that is learnt by itself
CHOSEN: Final = 1
REJECTED: Final = 2
WANTED: Final = 3
UNWANTED: Final = 4
PROMPT: Final = 5


class Document(Struct, frozen=True, array_like=True):
    """One sequence of tokens, ready to be written."""

    ids: bytes  # token ids as little-endian int32
    mask: bytes  # one byte per token, 1 for a label; the first token is not a label
    role: int = ANSWER  # ANSWER, CHOSEN, REJECTED, WANTED, UNWANTED or PROMPT
    item: bytes = b""  # data of a prompt for a grader, as JSON

    @classmethod
    def from_tokens(cls, tokens: Encoded, role: int = ANSWER, item: bytes = b"") -> "Document":
        return cls(_int32(tokens.ids), b"\0" + tokens.mask[1:], role, item)


class ShardWriter:
    """Collects packed rows in temporary files next to `path`; `close` joins them to one file.

    rows, sequences, tokens, trainable_tokens: how many were added so far
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._spools = {name: tempfile.TemporaryFile(dir=path.parent) for name, _, _ in TENSORS}  # noqa: SIM115  # closed in close()
        self.rows = self.sequences = self.tokens = self.trainable_tokens = 0

    def add_row(self, documents: Sequence[Document]) -> None:
        """Append one packed row."""
        self.rows += 1
        self._spools["row_lengths"].write(_int32([len(documents)]))
        for document in documents:
            self.sequences += 1
            self.tokens += len(document.mask)
            self.trainable_tokens += document.mask.count(1)
            self._spools["seq_lengths"].write(_int32([len(document.mask)]))
            self._spools["input_ids"].write(document.ids)
            self._spools["loss_mask"].write(document.mask)
            if document.role != ANSWER:
                self._spools["seq_roles"].write(bytes((document.role,)))
            if document.role == PROMPT:
                self._spools["item_lengths"].write(_int32([len(document.item)]))
                self._spools["item_bytes"].write(document.item)

    def close(self) -> None:
        """Write the file and flush it to disk. Raises `OSError` when that fails."""
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
        """Delete the temporary files. Has no effect after `close`."""
        for spool in self._spools.values():
            spool.close()

    def _header(self) -> bytes:
        header: dict[str, object] = {}
        start = 0
        for name, dtype, size in TENSORS:
            end = start + self._spools[name].tell()
            if name in OPTIONAL and end == start:
                continue
            shape = [(end - start) // size]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
            start = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % ALIGNMENT)
        return len(text).to_bytes(8, "little") + text


def _int32(numbers: Sequence[int]) -> bytes:
    """Encode numbers as little-endian int32 on every machine."""
    encoded = array("i", numbers)
    if sys.byteorder == "big":
        encoded.byteswap()
    return encoded.tobytes()
