"""Saves and restores the complete state of a training loop between two optimizer steps."""

import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter

from tunery.ml.adamw import AdapterAdamW
from tunery.ml.adapters import WEIGHTS, adapter_tensors
from tunery.ml.checkpoints import canonical_json
from tunery.ml.device import settle
from tunery.ml.exchange import bytes_of
from tunery.ml.sharding import ShardedLayers
from tunery.ml.tensor_files import METADATA, LazyTensors, TensorFile
from tunery.ml.trained import configuration, files_of, is_whole, write_sharded
from tunery.runtime.blobs.base_files import WEIGHTS as WHOLE_WEIGHTS

OPTIMIZER = "optimizer.safetensors"
RNG = "rng.safetensors"
RNG_REST = "rng.json"  # values that are not tensors
PROGRESS = "progress.json"
BEST = "best_adapter.safetensors"  # weights with the lowest validation loss, where they are wanted


def trainable(model: Any) -> dict[str, Parameter]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


@dataclass(frozen=True)
class Snapshot:
    """Files of a checkpoint in memory, all copied: what trains on does not change them.

    tensors: by name of file
    texts: by name of file
    uncopied: what writes a file of what was not copied, by its name
    """

    tensors: Mapping[str, Mapping[str, Tensor]]
    texts: Mapping[str, str]
    uncopied: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Write all files. Raises OSError, RankLost."""
        for name, write_file in self.uncopied.items():
            write_file(directory / name)
        for name, tensors in self.tensors.items():
            metadata = METADATA if name in (WEIGHTS, WHOLE_WEIGHTS) else None
            save_file(dict(tensors), directory / name, metadata=metadata)
        for name, text in self.texts.items():
            (directory / name).write_text(text, "utf-8")


def take(
    *,
    model: Any,
    base_id: str,
    optimizer: AdapterAdamW,
    scheduler: Any,
    progress: dict[str, Any],
    best: Mapping[str, Tensor],
    texts: Mapping[str, str],
    copies: "Copies",
    trained: Mapping[str, Tensor],
    sharded: ShardedLayers | None = None,
) -> Snapshot:
    """Copy what is trained, optimizer, schedule, random generators and `progress`.

    Of several ranks the first takes it, and all others `give` what they have. Raises RankLost.

    best: adapter with the lowest validation loss, which nothing changes; empty: there is none
    texts: files beside these, by name
    copies: makes them, for this time alone
    trained: `trained_tensors` of the model
    sharded: its layers, which are written from the device; None: it has all of them
    """
    rng, rng_rest = take_rng()
    weights, config = files_of(model)
    tensors = {RNG: rng}
    uncopied: dict[str, Callable[[Path], None]] = {}
    if sharded is None:
        tensors[weights] = copies.of(trained)
    else:
        uncopied[weights] = partial(write_sharded, model, sharded)
    if copies.in_place:
        uncopied[OPTIMIZER] = partial(write_optimizer, optimizer)
    else:
        tensors[OPTIMIZER] = copies.of_all_ranks(optimizer)
    if best:
        tensors[BEST] = {name: best[name].contiguous() for name in sorted(best)}
    settle()
    written = {**progress, "scheduler": scheduler.state_dict(), "groups": optimizer.groups()}
    all_texts = {
        **texts,
        config: configuration(model, base_id),
        RNG_REST: rng_rest,
        PROGRESS: canonical_json(written),
    }
    return Snapshot(tensors, all_texts, uncopied)


def write_optimizer(optimizer: AdapterAdamW, path: Path) -> None:
    """Write what all ranks have of an optimizer, tensor by tensor: no memory is needed for it.

    Raises OSError, RankLost.
    """
    own, elsewhere = optimizer.tensors(), optimizer.elsewhere()
    shapes = {name: tensor.shape for name, tensor in own.items()} | elsewhere
    with TensorFile(path, shapes) as file:
        for name, tensor in own.items():
            file.write(name, tensor)
        for name, part, content in optimizer.gather(elsewhere):
            file.write(name, content, part.start)


class Copies:
    """Copies of tensors in the memory of the processor; of those that share memory, one.

    in_place: tensors that are there already stay what they are: nothing may train meanwhile
    kept: tensors that nobody needs any more, to copy into: pages that the process has already are
      written in half of the time
    """

    def __init__(self, *, in_place: bool = False, kept: Iterable[Tensor] = ()) -> None:
        self.in_place = in_place
        self._kept: dict[tuple[object, ...], list[Tensor]] = {}
        for tensor in kept:
            self._kept.setdefault((tensor.dtype, tensor.shape), []).append(tensor)
        self._by_memory: dict[tuple[object, ...], Tensor] = {}
        self._copies: list[Tensor] = []

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Contiguous copies, by sorted name."""
        return {name: self._copy(tensors[name].detach()) for name in sorted(tensors)}

    def of_all_ranks(self, optimizer: AdapterAdamW) -> dict[str, Tensor]:
        """Contiguous copies of what each has of an optimizer, by sorted name. Raises RankLost."""
        copies, elsewhere = self.of(optimizer.tensors()), optimizer.elsewhere()
        for name, shape in elsewhere.items():
            copies[name] = self._memory(torch.float32, shape)
        for name, part, content in optimizer.gather(elsewhere):
            bytes_of(copies[name])[part].copy_(content)
        return {name: copies[name] for name in sorted(copies)}

    def all(self) -> list[Tensor]:
        """Every copy that was made, in order."""
        return self._copies

    def _copy(self, tensor: Tensor) -> Tensor:
        if self.in_place and tensor.device.type == "cpu":
            return tensor.contiguous()
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if memory not in self._by_memory:
            target = self._memory(tensor.dtype, tensor.shape)
            self._by_memory[memory] = target.copy_(tensor, non_blocking=target.is_pinned())
        return self._by_memory[memory]

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


def load_weights(directory: Path, model: Any, optimizer: AdapterAdamW) -> None:
    """Restore what is trained. Raises `RuntimeError` or `KeyError` when a tensor is missing."""
    if is_whole(model):
        optimizer.restore_weights(LazyTensors(directory / OPTIMIZER))
    else:
        load_adapter(directory, model)


def load_best(directory: Path) -> dict[str, Tensor]:
    """What `save` got as `best`."""
    path = directory / BEST
    return load_file(path) if path.exists() else {}


def load_optimizer(directory: Path, optimizer: AdapterAdamW, scheduler: Any) -> None:
    progress = load_progress(directory)
    optimizer.restore(LazyTensors(directory / OPTIMIZER), progress["groups"])
    scheduler.load_state_dict(progress["scheduler"])


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
    for index in range(torch.cuda.device_count()):
        if f"cuda{index}" in tensors:
            torch.cuda.set_rng_state(tensors[f"cuda{index}"], index)


def _rng_tensors(python_rng: tuple[Any, ...], numpy_rng: Any) -> dict[str, Tensor]:
    tensors = {
        "python": torch.tensor(python_rng[1], dtype=torch.int64),
        "numpy": torch.from_numpy(numpy_rng[1].astype(np.int64)),
        "torch": torch.get_rng_state(),
    }
    for index in range(torch.cuda.device_count()):
        tensors[f"cuda{index}"] = torch.cuda.get_rng_state(index)
    return tensors


def _number(value: Any) -> int | float:
    return float(value) if isinstance(value, float | np.floating) else int(value)
