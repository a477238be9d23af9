"""Saves and restores the complete state of a training loop between two optimizer steps."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter

from tunery.ml.adapters import CONFIG, WEIGHTS, adapter_config, adapter_tensors, canonical_config
from tunery.ml.checkpoints import canonical_json

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
    ) -> None:
        """`ratio`: rate of the matrices B of LoRA by that of all other weights (LoRA+)."""
        self.live = dict(weights)
        self.masters = {name: _master(weight) for name, weight in self.live.items()}
        groups = _groups(self.masters, rate, ratio)
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
        """Take a step and undo it: it needs the memory that every later one needs."""
        before = [master.clone() for master in self.masters.values()]
        self.step()
        for master, kept in zip(self.masters.values(), before, strict=True):
            master.copy_(kept)
        self.state.clear()
        self.publish()

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
    def restore(self, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]) -> None:
        """Undo `tensors()`. Raises `KeyError` when a weight's state is missing."""
        for name, master in self.masters.items():
            master.copy_(tensors[f"{name}.master"])
            state = {moment: tensors[f"{name}.{moment}"].clone() for moment in MOMENTS}
            device = master.device
            self.state[master] = {
                key: value if key == "step" else value.to(device) for key, value in state.items()
            }
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({**saved, "betas": tuple(saved["betas"])})
        self.publish()

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
            metadata = {"format": "pt"} if name == WEIGHTS else None
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
    in_place: bool = False,
) -> Snapshot:
    """Copy adapter, optimizer, schedule, random generators and `progress`.

    best: adapter with the lowest validation loss, which nothing changes; empty: there is none
    texts: files beside these, by name
    in_place: what is in the memory of the processor is not copied: nothing may train meanwhile
    """
    copies = Copies(in_place=in_place)
    rng, rng_rest = take_rng()
    tensors = {
        WEIGHTS: copies.of(adapter_tensors(model)),
        OPTIMIZER: copies.of(optimizer.tensors()),
        RNG: rng,
    }
    if best:
        tensors[BEST] = {name: best[name].contiguous() for name in sorted(best)}
    written = {**progress, "scheduler": scheduler.state_dict(), "groups": optimizer.groups()}
    all_texts = {
        **texts,
        CONFIG: canonical_config(adapter_config(model), base_id),
        RNG_REST: rng_rest,
        PROGRESS: canonical_json(written),
    }
    return Snapshot(tensors, all_texts)


class Copies:
    """Copies of tensors in the memory of the processor; of those that share memory, one.

    in_place: tensors that are there already stay what they are
    """

    def __init__(self, *, in_place: bool = False) -> None:
        self._in_place = in_place
        self._copies: dict[tuple[object, ...], Tensor] = {}

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Contiguous copies, by sorted name."""
        return {name: self._copy(tensors[name].detach()) for name in sorted(tensors)}

    def _copy(self, tensor: Tensor) -> Tensor:
        if self._in_place and tensor.device.type == "cpu":
            return tensor.contiguous()
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if memory not in self._copies:
            empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            self._copies[memory] = empty.copy_(tensor)
        return self._copies[memory]


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
    """What `save` got as `best`."""
    path = directory / BEST
    return load_file(path) if path.exists() else {}


def load_optimizer(directory: Path, optimizer: AdapterAdamW, scheduler: Any) -> None:
    progress = load_progress(directory)
    optimizer.restore(load_file(directory / OPTIMIZER), progress["groups"])
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
