"""Matrices of decoder layers multiplied in eight bits: torchao's float8 training.

Inputs, weights and gradients of a product are each scaled to the range of a float8 and rounded;
weights stay in the type of the run, and so do embeddings, norms, adapters and the output head.
Processors have no such product: torchao emulates it there, with the same rounding.
"""

import sys
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tunery.plan.engines import FLOAT8_MULTIPLE
from tunery.work.exits import WorkError

FLOAT8: Final = "fp8"
CAPABILITY_MIN: Final = (8, 9)  # of GPUs that multiply float8: Ada, Hopper and later


def use_float8(layers: Iterable[Any], device: torch.device, *, gathers: bool) -> None:
    """Have the linear layers of decoder layers compute in float8; adapters stay as they are.

    gathers: ranks have shares of the weights, and gather them in float8 (FSDP2)

    Raises WorkError("user") for a GPU without such products, and for sizes that it does not take.
    """
    is_emulated = device.type == "cpu"
    if not is_emulated and torch.cuda.get_device_capability(device) < CAPABILITY_MIN:
        message = f"{torch.cuda.get_device_name(device)} does not multiply float8"
        raise WorkError("user", message, "Set training.precision to bf16.")
    sys.modules.pop("torchao", None)  # `tunery.ml` hides it from other libraries
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = Float8LinearConfig(
        enable_fsdp_float8_all_gather=gathers,
        # a gradient of a weight is a sum over tokens, whose number is any
        pad_inner_dim=True,
        emulate=is_emulated,
    )
    for layer in layers:
        matrices = {
            name: [*module.weight.shape]
            for name, module in layer.named_modules()
            if _is_converted(module, name)
        }
        for name, sizes in matrices.items():
            if any(size % FLOAT8_MULTIPLE for size in sizes):
                message = (
                    f"{name} has the sizes {sizes}; float8 takes multiples of {FLOAT8_MULTIPLE}"
                )
                raise WorkError("user", message, "Set training.precision to bf16.")
        convert_to_float8_training(layer, module_filter_fn=_is_converted, config=config)


def unwrapped(weight: Tensor) -> Tensor:
    """The tensor in the type of the run, in place, of a weight that ranks gather in float8.

    torchao wraps this rank's share of it, and has no public name for what is inside.
    """
    local = weight.to_local() if isinstance(weight, DTensor) else weight
    inside: Tensor = getattr(local, "_tensor", local)
    if inside is local:
        return weight
    if not isinstance(weight, DTensor):
        return inside
    return DTensor.from_local(
        inside,
        weight.device_mesh,
        weight.placements,
        shape=weight.shape,
        stride=weight.stride(),
    )


def _is_converted(module: Any, name: str) -> bool:
    return isinstance(module, torch.nn.Linear) and "lora_" not in name
