"""Each process has all weights: alone, or with gradients that ranks add up once a step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from tunery.ml.optimizers import optimizer_of
from tunery.ml.ranks import Ranks
from tunery.ml.trained import is_whole, trained_tensors
from tunery.work.spec import Hyper


class WholeEngine:
    """The engines "single", and "fsdp2" with copied weights."""

    passes_together = False

    def __init__(self, model: Any, hyper: Hyper, ranks: Ranks) -> None:
        self.model = model
        self._ranks = ranks
        self.optimizer = optimizer_of(model, hyper, ranks)
        self.state_bytes = self.optimizer.state_bytes
        self._adapter: Mapping[str, Tensor] = {}

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        loss.backward()  # type: ignore[no-untyped-call]  # torch

    def clip(self, norm_max: float) -> Tensor:
        return self.optimizer.clip(norm_max)

    def step(self) -> None:
        self.optimizer.step()

    def rehearse(self) -> None:
        self.optimizer.rehearse()

    def trained(self) -> Mapping[str, Tensor]:
        if is_whole(self.model):
            return trained_tensors(self.model)
        # The tensors of an adapter stay where they are: finding them takes as long as copying them.
        self._adapter = self._adapter or trained_tensors(self.model)
        return self._adapter

    def state(self) -> Mapping[str, Tensor]:
        return self.optimizer.tensors() if self._ranks.is_first else {}

    def save_shards(self, folder: Path) -> None:
        return None

    def load(self, directory: Path) -> None:
        self.optimizer.restore(directory)
