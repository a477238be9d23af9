"""The two sides of a comparison, read together where they share their weights.

A forward pass can take a row twice, once through the base and once through the adapter (PEFT's
mixed batches): the numbers are those of two passes. Where a layer cannot do that (DoRA, a model
whose every weight was trained), each side is read by itself.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from peft.tuners.lora.layer import LoraLayer
from torch import Tensor
from transformers.cache_utils import DynamicLayer

SIDES: Final = ("base", "adapter")
WITHOUT_ADAPTER: Final = "__base__"  # PEFT's name in a mixed batch


@dataclass(frozen=True)
class Beginning:
    """Common prefix of a group's rows, already computed: the model's cache, and its tokens."""

    cache: Any
    tokens: int


@dataclass(frozen=True)
class Sides:
    """One model, or both sides of one."""

    model: Any
    adapters: tuple[str, ...] = ()  # PEFT's adapter name for each side; empty: the plain model

    @property
    def count(self) -> int:
        """How many sides there are."""
        return max(1, len(self.adapters))

    def read(self, tokens: Sequence[int]) -> Beginning | None:
        """Read a beginning; None: its cache cannot be continued several times."""
        ids = torch.tensor([tokens], device=self._device).expand(self.count, -1)
        with torch.no_grad():
            cache = self._run(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values
        plain = all(type(layer) is DynamicLayer for layer in getattr(cache, "layers", (None,)))
        return Beginning(cache, len(tokens)) if plain else None

    def logits(
        self, ids: Tensor, positions: Tensor, mask: Tensor, columns: Tensor, after: Beginning | None
    ) -> Tensor:
        """Logits of these columns of a row, [sides, columns, vocabulary].

        after: prefix that was read before the row; unchanged afterwards
        """
        inputs: dict[str, Any] = {"use_cache": False}
        if after is not None:
            inputs = {"use_cache": True, "past_key_values": after.cache}
        device = self._device
        with torch.no_grad():
            logits: Tensor = self._run(
                input_ids=ids.unsqueeze(0).expand(self.count, -1).to(device),
                position_ids=positions.unsqueeze(0).expand(self.count, -1).to(device),
                attention_mask=mask.expand(self.count, -1, -1, -1).to(device),
                logits_to_keep=columns.to(device),
                **inputs,
            ).logits
        if after is not None:
            after.cache.crop(-len(ids))
        return logits

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    def _run(self, **inputs: Any) -> Any:
        if self.adapters:
            inputs["adapter_names"] = list(self.adapters)
        return self.model(**inputs)


@dataclass(frozen=True)
class Pair:
    """The two models of a comparison."""

    trained: Any  # the base with its adapter, or a whole model
    base: Any = None  # None: `trained` with its adapter disabled

    @property
    def models(self) -> tuple[Any, ...]:
        """The models in memory: one, or two of whole weights."""
        return (self.trained,) if self.base is None else (self.trained, self.base)

    @contextmanager
    def side(self, name: str) -> Iterator[Any]:
        """The model that is called `base` or `adapter`."""
        if name == "adapter":
            yield self.trained
        elif self.base is not None:
            yield self.base
        else:
            with self.trained.disable_adapter():
                yield self.trained

    @contextmanager
    def sides(self, names: Sequence[str]) -> Iterator[Sides]:
        """Give the model with sides for one forward pass. Both of them only where `can_mix`."""
        if len(names) == 1:
            with self.side(names[0]) as model:
                yield Sides(model)
            return
        active = self.trained.active_adapter
        yield Sides(self.trained, (WITHOUT_ADAPTER, active))

    @property
    def passes(self) -> tuple[tuple[str, ...], ...]:
        """Groups of sides that share a forward pass."""
        return (SIDES,) if self.can_mix else tuple((name,) for name in SIDES)

    @property
    def can_mix(self) -> bool:
        """True if both sides fit in one pass: a plain LoRA adapter on shared weights."""
        if self.base is not None:
            return False
        layers = [module for module in self.trained.modules() if isinstance(module, LoraLayer)]
        return bool(layers) and not any(
            layer.use_dora.get(name) for layer in layers for name in layer.active_adapters
        )

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        device: torch.device = next(self.trained.parameters()).device
        return device
