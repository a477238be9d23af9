"""AdamW with moments in eight bits: bitsandbytes' on fp32 masters.

A moment has a byte for each weight, and a scale for each 256 of them. As with transformers' trainer
tables of tokens keep theirs in 32 bits; so do weights of fewer than 4,096 values.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from bitsandbytes.optim import AdamW8bit
from torch import Tensor
from torch.nn import Parameter

from tunery.ml.adamw import CODES, MasterWeights, parameter_groups, read_tensors
from tunery.ml.optimizers import divided
from tunery.ml.ranks import Ranks
from tunery.work.spec import Hyper

BITS: Final = "optim_bits"  # setting of a group


class AdapterAdamW8bit(MasterWeights, AdamW8bit):  # type: ignore[misc]  # untyped
    """bitsandbytes' AdamW on masters."""

    def __init__(
        self,
        weights: Mapping[str, Parameter],
        hyper: Hyper,
        *,
        whole: bool,
        tables: Collection[int],
        ranks: Ranks,
    ) -> None:
        """`tables`: identities of weights of a model whose moments have 32 bits."""
        self._keep_masters(weights, ranks)
        groups = parameter_groups(self.masters, hyper.learning_rate, hyper.lora_plus, whole=whole)
        wide = {id(self.masters[name]) for name, live in self.live.items() if id(live) in tables}
        of_tables, others = divided(groups, lambda weight: id(weight) in wide)
        groups = [*others, *(group | {BITS: 32} for group in of_tables)]
        settings: dict[str, Any] = {"lr": hyper.learning_rate, "weight_decay": hyper.weight_decay}
        super().__init__(groups, **settings)

    def get_config(self, gindex: int, pindex: int, group: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a weight. The library asks; its own overrides are global."""
        config: dict[str, Any] = super().get_config(gindex, pindex, group)
        return config | {BITS: group.get(BITS, config[BITS])}

    def tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            tensors[f"{name}.master"] = master.detach()
            for moment, value in self.state.get(master, {}).items():
                if moment not in CODES:
                    tensors[f"{name}.{moment}"] = torch.as_tensor(value)  # a count of steps, too
        return tensors

    @torch.no_grad()
    def restore(self, directory: Path) -> None:
        for gindex, group in enumerate(self.param_groups):
            for pindex, master in enumerate(group["params"]):
                self.init_state(group, master, gindex, pindex)
        tensors = self.tensors()
        read_tensors(tensors, directory)
        for name, master in self.masters.items():
            self.state[master]["step"] = int(tensors[f"{name}.step"])
        self.publish()
