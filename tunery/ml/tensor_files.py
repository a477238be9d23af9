"""Files of tensors that are larger than the memory that is left: read and written in parts."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, cast

import torch
from safetensors import safe_open
from torch import Tensor

from tunery.ml.exchange import bytes_of

LENGTH_BYTES: Final = 8  # before the header
ALIGNED_BYTES: Final = 8
METADATA: Final = {"format": "pt"}  # of weights, as libraries expect it
TYPES: Final = {torch.float32: "F32", torch.bfloat16: "BF16"}


class LazyTensors(Mapping[str, Tensor]):
    """The tensors of a file, each read when it is asked for: all at once may not fit."""

    def __init__(self, path: Path) -> None:
        self._file = cast("Any", safe_open(path, framework="pt"))
        self._names: set[str] = set(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor: Tensor = self._file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class TensorFile:
    """A new file of tensors of one type: its block has to write all of them.

    It has the bytes that `save_file` of safetensors writes. Raises OSError.
    """

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, torch.Size],
        dtype: torch.dtype = torch.float32,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
        self._begins: dict[str, int] = {}
        end = 0
        for name in sorted(shapes):
            begin, end = end, end + dtype.itemsize * shapes[name].numel()
            header[name] = {
                "dtype": TYPES[dtype], "shape": list(shapes[name]), "data_offsets": [begin, end]
            }  # fmt: skip
            self._begins[name] = begin
        content = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        content += b" " * (-len(content) % ALIGNED_BYTES)
        self._data_begins = LENGTH_BYTES + len(content)
        self._file = path.open("xb")
        self._put(len(content).to_bytes(LENGTH_BYTES, "little") + content, 0)

    def __enter__(self) -> "TensorFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, name: str, tensor: Tensor, begin: int = 0) -> None:
        """Write a tensor, or a part of it that begins at a byte. Raises OSError."""
        content: Any = bytes_of(tensor.contiguous().cpu()).numpy()
        self._put(memoryview(content), self._data_begins + self._begins[name] + begin)

    def _put(self, content: bytes | memoryview, at: int) -> None:
        left = memoryview(content)
        while len(left):
            written = os.pwrite(self._file.fileno(), left, at)
            left, at = left[written:], at + written
