"""Weights and steps of an optimizer, without a model."""

import torch
from torch.nn import Parameter

from tunery.ml.adamw import AdapterAdamW


def weights(dtype: torch.dtype) -> dict[str, Parameter]:
    return {
        "b": Parameter(torch.full((3,), 1.0, dtype=dtype)),
        "a": Parameter(torch.full((2, 2), -1.0, dtype=dtype)),
    }


def steps(optimizer: AdapterAdamW, count: int) -> None:
    for _ in range(count):
        for weight in optimizer.live.values():
            weight.grad = weight.detach().clone()
        optimizer.step()
