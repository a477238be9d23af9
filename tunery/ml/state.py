"""Saves and restores the complete state of a training loop between two optimizer steps."""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter

from tunery.ml.adamw import AdapterAdamW
from tunery.ml.adapters import METADATA, WEIGHTS, adapter_tensors
from tunery.ml.checkpoints import canonical_json
from tunery.ml.device import settle
from tunery.ml.trained import configuration, files_of
from tunery.platform.blobs.base_files import WEIGHTS as WHOLE_WEIGHTS

if TYPE_CHECKING:
    from tunery.ml.engines import TrainingEngine

FILE_BYTES_MAX: Final = 2**31  # of an optimizer: safetensors copies a file before it writes it
OPTIMIZER = "optimizer.safetensors"
RNG = "rng.safetensors"
RNG_REST = "rng.json"  # values that are not tensors
PROGRESS = "progress.json"
BEST = "best_adapter.safetensors"  # weights with the lowest validation loss, where they are wanted


def trainable(model: Any) -> dict[str, Parameter]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


@dataclass(frozen=True)
class Snapshot:
    """Files of a checkpoint in memory, all copied: what trains on does not change them."""

    tensors: Mapping[str, Mapping[str, Tensor]]  # tensors by name of file
    texts: Mapping[str, str]  # texts by name of file

    def write(self, directory: Path) -> None:
        """Write all files. Raises OSError."""
        for name, tensors in self.tensors.items():
            metadata = METADATA if name in (WEIGHTS, WHOLE_WEIGHTS) else None
            save_file(dict(tensors), directory / name, metadata=metadata)
        for name, text in self.texts.items():
            (directory / name).write_text(text, "utf-8")


def take(
    *,
    engine: "TrainingEngine",
    base_id: str,
    progress: dict[str, Any],
    best: Mapping[str, Tensor],
    texts: Mapping[str, str],
    copies: "Copies",
) -> Snapshot:
    """Copy what is trained, the optimizer, random generators and `progress`.

    All ranks call; what the first one gets is written.

    best: tensors with the lowest validation loss, which nothing changes; empty: there are none
    texts: files next to these, by name
    copies: makes them, for this time alone
    """
    model = engine.model
    rng, rng_rest = take_rng()
    weights, config = files_of(model)
    tensors = {RNG: rng, weights: copies.of(engine.trained())}
    tensors |= in_files(copies.of(engine.state()))
    if best:
        tensors[BEST] = {name: best[name].contiguous() for name in sorted(best)}
    settle()
    all_texts = {
        **texts,
        config: configuration(model, base_id),
        RNG_REST: rng_rest,
        PROGRESS: canonical_json(progress),
    }
    return Snapshot(tensors, all_texts)


def in_files(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """An optimizer's tensors by the names of files, each of which fits into memory once more."""
    files: list[dict[str, Tensor]] = [{}]
    bytes_left = FILE_BYTES_MAX
    for name, tensor in tensors.items():
        if tensor.nbytes > bytes_left and files[-1]:
            files.append({})
            bytes_left = FILE_BYTES_MAX
        files[-1][name] = tensor
        bytes_left -= tensor.nbytes
    names = [f"optimizer-{at:05d}.safetensors" for at in range(len(files))]
    names = [OPTIMIZER] if len(files) == 1 else names
    return {name: file for name, file in zip(names, files, strict=True) if file}


class Copies:
    """Copies of tensors in the memory of the processor; of those that share memory, one.

    in_place: tensors that are there already stay what they are: nothing may train meanwhile
    kept: tensors that are no longer needed, to copy into: pages that the process has already are
      written in half of the time
    """

    def __init__(self, *, in_place: bool = False, kept: Iterable[Tensor] = ()) -> None:
        self.in_place = in_place
        self._kept: dict[tuple[object, ...], list[Tensor]] = {}
        for tensor in kept:
            self._kept.setdefault((tensor.dtype, tensor.shape), []).append(tensor)
        # with what was copied: its memory must not be another tensor's meanwhile
        self._by_memory: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}
        self._copies: list[Tensor] = []

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Contiguous copies, by sorted name."""
        return {name: self._copy(tensors[name].detach()) for name in sorted(tensors)}

    def all(self) -> list[Tensor]:
        """Every copy that was made, in order."""
        return self._copies

    def _copy(self, tensor: Tensor) -> Tensor:
        if self.in_place and tensor.device.type == "cpu":
            return tensor.contiguous()
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if memory not in self._by_memory:
            target = self._memory(tensor.dtype, tensor.shape)
            target.copy_(tensor, non_blocking=target.is_pinned())
            self._by_memory[memory] = (tensor, target)
        return self._by_memory[memory][1]

    def _memory(self, dtype: torch.dtype, shape: torch.Size) -> Tensor:
        fitting = self._kept.get((dtype, shape))
        target = fitting.pop(0) if fitting else torch.empty(shape, dtype=dtype, device="cpu")
        self._copies.append(target)
        return target


def memory_for_copies(optimizer: AdapterAdamW) -> list[Tensor]:
    """Memory to copy a state into, written once: the process has its pages from then on.

    Those of an accelerator's tensors stay in place, which lets it copy all of them by itself.
    """
    copies: list[Tensor] = []
    for live in optimizer.live.values():
        dtypes = [torch.float32] * 3  # the master and two moments
        if live.dtype != torch.float32:
            dtypes.append(live.dtype)
        for dtype in dtypes:
            empty = torch.empty(live.shape, dtype=dtype, device="cpu", pin_memory=live.is_cuda)
            copies.append(empty.fill_(0))
    return copies


def load_progress(directory: Path) -> dict[str, Any]:
    progress: dict[str, Any] = json.loads((directory / PROGRESS).read_text("utf-8"))
    return progress


def load_adapter(directory: Path, model: Any) -> None:
    """Raises `RuntimeError` when a tensor of the adapter is missing or has another shape."""
    from peft import set_peft_model_state_dict  # seconds of import

    tensors = load_file(directory / WEIGHTS)
    missing = adapter_tensors(model).keys() ^ tensors.keys()
    if missing:
        raise RuntimeError(f"adapter tensors differ: {sorted(missing)[:3]}")
    set_peft_model_state_dict(model, tensors)


def load_best(directory: Path) -> dict[str, Tensor]:
    """Load the best weights that `save` got as `best`; empty if there were none."""
    path = directory / BEST
    return load_file(path) if path.exists() else {}


def take_rng() -> tuple[dict[str, Tensor], str]:
    """The state of every random generator: Python's, numpy's, torch's on each device.

    What is no tensor is JSON.
    """
    python_rng = random.getstate()
    numpy_rng: Any = np.random.get_state()  # the global one: libraries draw from it
    rest = {
        "python": [python_rng[0], python_rng[2]],
        "numpy": [str(numpy_rng[0]), *(_number(value) for value in numpy_rng[2:])],
    }
    return _rng_tensors(python_rng, numpy_rng), canonical_json(rest)


def load_rng(directory: Path) -> None:
    """Restore every random generator."""
    tensors = load_file(directory / RNG)
    rest = json.loads((directory / RNG_REST).read_text("utf-8"))
    version, gauss = rest["python"]
    random.setstate((version, tuple(tensors["python"].tolist()), gauss))
    kind, position, has_gauss, cached = rest["numpy"]
    keys = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state((kind, keys, position, has_gauss, cached))
    torch.set_rng_state(tensors["torch"])
    if torch.cuda.is_available() and "cuda0" in tensors:
        torch.cuda.set_rng_state(tensors["cuda0"])


def _rng_tensors(python_rng: tuple[Any, ...], numpy_rng: Any) -> dict[str, Tensor]:
    tensors = {
        "python": torch.tensor(python_rng[1], dtype=torch.int64),
        "numpy": torch.from_numpy(numpy_rng[1].astype(np.int64)),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():  # of the device that this process works on, alone
        tensors["cuda0"] = torch.cuda.get_rng_state()
    return tensors


def _number(value: Any) -> int | float:
    return float(value) if isinstance(value, float | np.floating) else int(value)
