"""Saves and restores the complete state of a training loop between two optimizer steps."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter

from tunery.ml.adapters import WEIGHTS, adapter_tensors
from tunery.ml.checkpoints import canonical_json
from tunery.ml.device import settle
from tunery.ml.trained import configuration, files_of, is_whole
from tunery.runtime.blobs.base_files import WEIGHTS as WHOLE_WEIGHTS

OPTIMIZER = "optimizer.safetensors"
RNG = "rng.safetensors"
RNG_REST = "rng.json"  # values that are not tensors
PROGRESS = "progress.json"
BEST = "best_adapter.safetensors"  # weights with the lowest validation loss, where they are wanted
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class AdapterAdamW(torch.optim.AdamW):
    """AdamW that keeps an fp32 master copy of every weight that is narrower.

    An update of 1e-4 on a weight of 1e-2 is close to the resolution of bf16: added to the weight
    itself most updates would be lost. So would gradients of micro-batches that are added in bf16:
    each goes to its master when it is computed, and is added and clipped there.
    """

    def __init__(
        self,
        weights: Mapping[str, Parameter],
        *,
        rate: float,
        weight_decay: float,
        ratio: float = 1.0,
        whole: bool = False,
    ) -> None:
        """`ratio`: rate of the matrices B of LoRA by that of all other weights (LoRA+).

        whole: of a model whose every weight is trained; its norms and biases do not decay
        """
        self.is_whole = whole
        self.live = dict(weights)
        self.masters = {name: _master(weight) for name, weight in self.live.items()}
        groups = _whole(self.masters) if whole else _groups(self.masters, rate, ratio)
        super().__init__(groups, lr=rate, weight_decay=weight_decay)
        for name, live in self.live.items():
            if self.masters[name] is not live:
                hook = partial(_hand_over, self.masters[name])
                live.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]  # torch

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure, no loss
        for name, live in self.live.items():
            if self.masters[name] is not live:
                _hand_over(self.masters[name], live)
        super().step()
        self.drop_gradients()
        self.publish()

    def clip(self, norm_max: float) -> Tensor:
        """Scale the gradients down to a norm; the norm that they had."""
        return torch.nn.utils.clip_grad_norm_(list(self.masters.values()), norm_max)

    @torch.no_grad()
    def rehearse(self) -> None:
        """Take a step that changes nothing: it needs the memory that every later one needs."""
        for name, master in self.masters.items():
            if master is not self.live[name]:
                _hand_over(master, self.live[name])
            if master.grad is not None:
                master.grad.zero_()
        decays = [group["weight_decay"] for group in self.param_groups]
        for group in self.param_groups:
            group["weight_decay"] = 0.0
        super().step()  # by gradients of zero: no weight moves
        for group, decay in zip(self.param_groups, decays, strict=True):
            group["weight_decay"] = decay
        self.state.clear()
        self.drop_gradients()

    def drop_gradients(self) -> None:
        """Forget all gradients."""
        for master in self.masters.values():
            master.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters into the weights the model computes with."""
        for name, live in self.live.items():
            if self.masters[name] is not live:
                live.copy_(self.masters[name])

    def tensors(self) -> dict[str, Tensor]:
        """Masters and moments, named `<weight>.master`, `<weight>.exp_avg`, …"""
        tensors: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            tensors[f"{name}.master"] = master.detach()
            for moment, value in self.state.get(master, {}).items():
                tensors[f"{name}.{moment}"] = value
        return tensors

    @torch.no_grad()
    def restore_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights alone. Raises `KeyError` when one is missing."""
        for name, master in self.masters.items():
            master.copy_(tensors[f"{name}.master"])
        self.publish()

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]) -> None:
        """Undo `tensors()`. Raises `KeyError` when a weight's state is missing.

        The masters of a whole model were restored as its weights.
        """
        if not self.is_whole:
            self.restore_weights(tensors)
        for name, master in self.masters.items():
            state = {moment: tensors[f"{name}.{moment}"].clone() for moment in MOMENTS}
            device = master.device
            self.state[master] = {
                key: value if key == "step" else value.to(device) for key, value in state.items()
            }
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({**saved, "betas": tuple(saved["betas"])})

    def groups(self) -> list[dict[str, Any]]:
        """Settings of the parameter groups, the scheduled rate among them."""
        return [
            {name: value for name, value in group.items() if name != "params"}
            for group in self.param_groups
        ]


def _groups(masters: Mapping[str, Tensor], rate: float, ratio: float) -> list[dict[str, Any]]:
    """Parameter groups. The first has the rate that is reported."""
    if ratio == 1.0:
        return [{"params": list(masters.values())}]
    slow = [master for name, master in masters.items() if ".lora_B." not in name]
    fast = [master for name, master in masters.items() if ".lora_B." in name]
    return [{"params": slow}, {"params": fast, "lr": ratio * rate}]


def _whole(masters: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Parameter groups of a whole model, as transformers has them: norms and biases apart."""
    weights = [master for master in masters.values() if master.dim() > 1]
    others = [master for master in masters.values() if master.dim() <= 1]
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _master(weight: Parameter) -> Tensor:
    if weight.dtype == torch.float32:
        return weight
    return weight.detach().float().clone().requires_grad_()


@torch.no_grad()
def _hand_over(master: Tensor, live: Tensor) -> None:
    """Add the gradient of a weight to its master's, where the sum of micro-batches is kept."""
    if live.grad is None:
        return
    wide = live.grad.float()
    master.grad = wide if master.grad is None else master.grad.add_(wide)
    live.grad = None


def trainable(model: Any) -> dict[str, Parameter]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


@dataclass(frozen=True)
class Snapshot:
    """Files of a checkpoint in memory, all copied: what trains on does not change them.

    tensors: by name of file
    texts: by name of file
    """

    tensors: Mapping[str, Mapping[str, Tensor]]
    texts: Mapping[str, str]

    def write(self, directory: Path) -> None:
        """Write all files. Raises OSError."""
        for name, tensors in self.tensors.items():
            metadata = {"format": "pt"} if name in (WEIGHTS, WHOLE_WEIGHTS) else None
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
) -> Snapshot:
    """Copy what is trained, optimizer, schedule, random generators and `progress`.

    best: adapter with the lowest validation loss, which nothing changes; empty: there is none
    texts: files beside these, by name
    copies: makes them, for this time alone
    trained: `trained_tensors` of the model
    """
    rng, rng_rest = take_rng()
    weights, config = files_of(model)
    tensors = {
        weights: copies.of(trained),
        OPTIMIZER: copies.of(optimizer.tensors()),
        RNG: rng,
    }
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
    return Snapshot(tensors, all_texts)


class Copies:
    """Copies of tensors in the memory of the processor; of those that share memory, one.

    in_place: tensors that are there already stay what they are: nothing may train meanwhile
    kept: tensors that nobody needs any more, to copy into: pages that the process has already are
      written in half of the time
    """

    def __init__(self, *, in_place: bool = False, kept: Iterable[Tensor] = ()) -> None:
        self._in_place = in_place
        self._kept: dict[tuple[object, ...], list[Tensor]] = {}
        for tensor in kept:
            self._kept.setdefault((tensor.dtype, tensor.shape), []).append(tensor)
        self._by_memory: dict[tuple[object, ...], Tensor] = {}

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Contiguous copies, by sorted name."""
        return {name: self._copy(tensors[name].detach()) for name in sorted(tensors)}

    def all(self) -> list[Tensor]:
        """Every copy that was made, in order."""
        return list(self._by_memory.values())

    def _copy(self, tensor: Tensor) -> Tensor:
        if self._in_place and tensor.device.type == "cpu":
            return tensor.contiguous()
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if memory not in self._by_memory:
            fitting = self._kept.get((tensor.dtype, tensor.shape))
            target = (
                fitting.pop(0)
                if fitting
                else torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            )
            self._by_memory[memory] = target.copy_(tensor, non_blocking=target.is_pinned())
        return self._by_memory[memory]


def memory_for_copies(optimizer: AdapterAdamW) -> list[Tensor]:
    """Memory to copy a state into, written once: the process has its pages from then on.

    Those of an accelerator's tensors stay in place, which lets it copy all of them by itself.
    """
    tensors: list[Tensor] = []
    for name, master in optimizer.masters.items():
        tensors += [master] * 3  # itself and two moments
        if optimizer.live[name] is not master:
            tensors.append(optimizer.live[name])
    return [
        torch.empty(
            tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda
        ).fill_(0)
        for tensor in tensors
    ]


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
