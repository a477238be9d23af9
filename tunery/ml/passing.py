"""Decoder layers whose weights pass through buffers of the device.

Layers take turns with the buffers, each of which is as large as the largest layer. Before a layer
computes, its weights are brought to its buffer; in the backward pass, where it is computed again
(`recompute`), once more. The weights of a layer always have the same address, so that autograd has
to know nothing of it; kernels and values are those of a model that has all its layers, and so are
the bits.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter

from tunery.work.exits import WorkError

# Kernels are chosen by it, too: an accelerator's allocator aligns tensors so; on a processor they
# lie in a buffer as they lie in their file.
ALIGNMENT_BYTES: Final = 512


def decoder_layers(base: Any, refused: Callable[[str], WorkError]) -> ModuleList:
    """The layers of a model. Raises what `refused` gives where it has no plain list of them."""
    decoder = getattr(base, base.base_model_prefix, None)
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, ModuleList) or not all(
        hasattr(layer, "gradient_checkpointing") for layer in layers
    ):
        raise refused(f"{base.config.model_type} has no plain list of decoder layers")
    return layers


class PassingLayers(ABC):
    """Decoder layers some of whose weights are brought to a device whenever they are needed.

    views: where the weights of each layer are on the device
    """

    def __init__(
        self,
        layers: ModuleList,
        weights: Sequence[Sequence[Parameter]],
        device: torch.device,
        slots: int,
    ) -> None:
        """weights: of each layer, those that pass. slots: how many buffers there are"""
        self._layers, self._weights = layers, weights
        begins = [_begins(of_layer, device) for of_layer in weights]
        size = max(of_layer[-1] for of_layer in begins)
        buffers = [_buffer(size, device) for _ in range(slots)]
        self.views = [
            [
                buffers[number % slots][begin : begin + weight.nbytes]
                .view(weight.dtype)
                .view(weight.shape)
                for weight, begin in zip(weights[number], of_layer[:-1], strict=True)
            ]
            for number, of_layer in enumerate(begins)
        ]
        self._held: list[int | None] = [None] * slots
        self._current: int | None = None

    def pass_all(self) -> None:
        """Have each layer on the device once, as a pass that computes nothing."""
        for _ in self.passing():
            pass

    def passing(self) -> Iterator[int]:
        """The number of each layer, once it is on the device."""
        self._current = None
        for number in range(len(self._layers)):
            with torch.no_grad():
                self._before(number)
            yield number

    @abstractmethod
    def _bring(self, number: int, slot: int) -> None:
        """Begin to copy the weights of a layer to its views.

        All that used the buffer before was asked of the device already.
        """

    @abstractmethod
    def _arrive(self, slot: int) -> None:
        """Wait until what was begun last for a buffer is there."""

    @abstractmethod
    def _leave(self, number: int) -> None:
        """Another layer than this one is asked for."""

    @abstractmethod
    def _keep(self, number: int) -> None:
        """Keep of the weights of a layer what is needed to bring them: they are as they were."""

    def _attach(self) -> None:
        """Let the weights be where they pass, layer by layer."""
        for number, (layer, weights) in enumerate(zip(self._layers, self._weights, strict=True)):
            self._keep(number)
            for weight, view in zip(weights, self.views[number], strict=True):
                weight.data = view
            for module in _with_any(layer, set(map(id, weights))):
                # Of each module, not of the layer: a layer that is computed again is not called.
                module.register_forward_pre_hook(partial(self._before, number))

    def _before(self, number: int, *_: object) -> None:
        """Have the weights of a layer on the device, and begin to bring those of the next one."""
        self._check_checkpointing(number)
        if number == self._current:
            return
        before, self._current = self._current, number
        if before is not None:
            self._leave(before)
        self._begin(number)
        self._arrive(number % len(self._held))
        following = self._following(before, number)
        if following is not None:
            self._begin(following)

    def _following(self, before: int | None, number: int) -> int | None:
        """The next layer, by the way that the last two went. At either end the passes turn."""
        last = len(self._layers) - 1
        if last == 0 or len(self._held) == 1:
            return None
        if number in (0, last):
            return 1 if number == 0 else last - 1
        return number - 1 if before is not None and before > number else number + 1

    def _check_checkpointing(self, number: int) -> None:
        """Raises RuntimeError where a backward pass would find the weights of another layer."""
        layer: Any = self._layers[number]
        if torch.is_grad_enabled() and not (layer.training and layer.gradient_checkpointing):
            raise RuntimeError("layers that pass are trained with recompute only")

    def _begin(self, number: int) -> None:
        slot = number % len(self._held)
        if self._held[slot] != number:
            self._held[slot] = number
            self._bring(number, slot)


def _begins(weights: Sequence[Tensor], device: torch.device) -> list[int]:
    """Where weights lie in a buffer, and where the last one ends."""
    begins, end = [], 0
    for weight in weights:
        begin = end
        if device.type == "cpu":
            begin += (weight.data_ptr() - begin) % ALIGNMENT_BYTES
        else:
            begin += -begin % ALIGNMENT_BYTES
        begins.append(begin)
        end = begin + weight.nbytes
    return [*begins, end]


def _buffer(size: int, device: torch.device) -> Tensor:
    """Bytes on a device, the first of them aligned."""
    whole = torch.empty(size + ALIGNMENT_BYTES, dtype=torch.uint8, device=device)
    return whole[-whole.data_ptr() % ALIGNMENT_BYTES :][:size]


def _with_any(layer: Module, weights: set[int]) -> Iterator[Module]:
    """Modules that have some of the weights themselves."""
    for module in layer.modules():
        if any(id(weight) in weights for weight in module.parameters(recurse=False)):
            yield module
