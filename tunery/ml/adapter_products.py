"""Fused forward and backward of a LoRA adapter: three products, without passes in between.

LoRA (Hu et al., arXiv:2106.09685) adds s·(x Aᵀ) Bᵀ to a layer's output. Computed as it is written,
it goes over values as wide as the layer three times more: to scale, to add, and to scale gradients.
Here the last product scales and adds, and gradients are scaled where they are as narrow as the
rank. Sums are the same, and rounded once where they were rounded three times.
"""

from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import LoraVariant
from torch import Tensor


def use_products(model: Any) -> None:
    """Have adapters of linear layers computed like this, where they are plain ones (no DoRA)."""
    for layer in model.modules():
        if not isinstance(layer, LoraLayer) or not isinstance(layer.base_layer, torch.nn.Linear):
            continue
        for name in layer.lora_A:
            if name not in layer.lora_variant and not layer.lora_bias[name]:
                layer.lora_variant[name] = Products()


class Products(LoraVariant):  # type: ignore[misc]  # peft is untyped
    """Variant of a LoRA layer, as PEFT's extension point for other computations."""

    @staticmethod
    def forward(module: Any, active_adapter: str, x: Tensor, result: Tensor, **_: Any) -> Tensor:
        """x: [..., inputs]; result: [..., outputs] of the layer without its adapter"""
        dropped = module.lora_dropout[active_adapter](x)
        reduce, expand = (part[active_adapter].weight for part in (module.lora_A, module.lora_B))
        added: Tensor = _Added.apply(
            result, dropped, reduce, expand, module.scaling[active_adapter]
        )
        return added


class _Added(torch.autograd.Function):
    """`result` + scaling · (x reduceᵀ) expandᵀ, in the place of `result`.

    result: [..., outputs], which nothing else reads: a linear layer does not need its own again
    x: [..., inputs]; reduce: [rank, inputs]; expand: [outputs, rank]
    """

    @staticmethod
    def forward(
        context: Any, result: Tensor, x: Tensor, reduce: Tensor, expand: Tensor, scaling: float
    ) -> Tensor:
        rows = x.flatten(0, -2)
        reduced = rows @ reduce.T
        context.save_for_backward(rows, reduced, reduce, expand)
        context.scaling, context.shape = scaling, x.shape
        result.flatten(0, -2).addmm_(reduced, expand.T, alpha=scaling)
        context.mark_dirty(result)
        return result

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, reduced, reduce, expand = context.saved_tensors
        (gradient,) = gradients
        of_rows = gradient.flatten(0, -2)
        of_reduced = (of_rows @ expand) * context.scaling
        wants_x, wants_reduce, wants_expand = context.needs_input_grad[1:4]
        return (
            gradient,
            (of_reduced @ reduce).view(context.shape) if wants_x else None,
            of_reduced.T @ rows if wants_reduce else None,
            (of_rows.T @ reduced) * context.scaling if wants_expand else None,
            None,
        )
