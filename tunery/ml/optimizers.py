"""The optimizer of a training in one process, by its name: AdamW, AdamW in eight bits, Muon.

All keep masters, and have their state in checkpoints, as `tunery.ml.adamw` does.
"""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tunery.ml import state
from tunery.ml.adamw import AdapterAdamW, MasterWeights, is_fused, parameter_groups
from tunery.ml.attention import causal_of
from tunery.ml.device import BF16_FLAGS, cpu_flags
from tunery.ml.ranks import Ranks
from tunery.ml.trained import is_whole
from tunery.work.spec import Hyper

Groups: TypeAlias = list[dict[str, Any]]
# A matrix's update gets the size of AdamW's, so that rates and their default mean the same
# ("Muon is scalable for LLM training", §2.2).
RATES_OF_ADAMW: Final = "match_rms_adamw"


def optimizer_of(model: Any, hyper: Hyper, ranks: Ranks) -> MasterWeights:
    """Return the optimizer that hyper-parameters name, for all weights of a model that train."""
    weights, whole = state.trainable(model), is_whole(model)
    if hyper.optimizer == "adamw":
        return AdapterAdamW(
            weights,
            rate=hyper.learning_rate,
            weight_decay=hyper.weight_decay,
            ratio=hyper.lora_plus,
            whole=whole,
            ranks=ranks,
        )
    causal = causal_of(model)
    tables = {id(each) for each in causal.get_input_embeddings().parameters()}
    if hyper.optimizer == "adamw_8bit":
        # Looks for devices while it is loaded, which other trainings do without.
        from tunery.ml.adamw_8bit import AdapterAdamW8bit

        return AdapterAdamW8bit(weights, hyper, whole=whole, tables=tables, ranks=ranks)
    if (head := causal.get_output_embeddings()) is not None:
        tables |= {id(each) for each in head.parameters()}
    return AdapterMuon(weights, hyper, whole=whole, tables=tables, ranks=ranks)


def divided(groups: Groups, takes: Callable[[Tensor], bool]) -> tuple[Groups, Groups]:
    """Return the groups of weights that `takes` is true of, and those of the others; none empty."""
    sides: list[Groups] = [
        [
            group | {"params": weights}
            for group in groups
            if (weights := [each for each in group["params"] if takes(each) == is_taken])
        ]
        for is_taken in (True, False)
    ]
    return sides[0], sides[1]


class WideProducts(TorchFunctionMode):
    """Multiplies matrices of bf16 in fp32 and rounds the result, as processors with bf16 do.

    Others took 5 to 10 times as long for Muon's products in bf16, which torch has no option for.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func not in (torch.Tensor.matmul, torch.addmm):
            return func(*args, **(kwargs or {}))
        return func(*(each.float() for each in args), **(kwargs or {})).to(args[0].dtype)


class MuonAndAdamW(torch.optim.Optimizer):
    """torch's Muon for some groups of weights and AdamW for others, as one optimizer."""

    def __init__(
        self, matrices: Groups, others: Groups, *, lr: float, weight_decay: float, fused: bool
    ) -> None:
        """`matrices`, `others`: groups of Muon and of AdamW; either may be empty, not both."""
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            self._parts.append(
                torch.optim.Muon(
                    matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn=RATES_OF_ADAMW
                )
            )
        if others:
            self._parts.append(
                torch.optim.AdamW(others, lr=lr, weight_decay=weight_decay, fused=fused)
            )
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        for part in self._parts:  # whose groups are the same objects already
            part.state = self.state
        on_gpu = self.param_groups[0]["params"][0].is_cuda
        self._widens = not on_gpu and not cpu_flags() & BF16_FLAGS

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure, no loss
        with WideProducts() if self._widens else nullcontext():
            for part in self._parts:
                part.step()


class AdapterMuon(MasterWeights, MuonAndAdamW):
    """Muon on masters of matrices; AdamW for tables of tokens, vectors and tensors of experts."""

    def __init__(
        self,
        weights: dict[str, torch.nn.Parameter],
        hyper: Hyper,
        *,
        whole: bool,
        tables: Collection[int],
        ranks: Ranks,
    ) -> None:
        """`tables`: identities of weights of a model that are no matrices of its layers."""
        self._keep_masters(weights, ranks)
        groups = parameter_groups(self.masters, hyper.learning_rate, hyper.lora_plus, whole=whole)
        matrices = {
            id(self.masters[name])
            for name, live in self.live.items()
            if live.dim() == 2 and min(live.shape) > 1 and id(live) not in tables
        }
        super().__init__(
            *divided(groups, lambda weight: id(weight) in matrices),
            lr=hyper.learning_rate,
            weight_decay=hyper.weight_decay,
            fused=is_fused(self.masters),
        )
