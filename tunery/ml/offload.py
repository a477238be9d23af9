"""A frozen base whose layers stay in the machine's memory and pass through the device.

The device has two buffers, each as large as the largest layer. Layers with even numbers compute in
the first, those with odd numbers in the second: while one computes, its neighbour is copied into
the other. In the backward pass each layer is computed again (`recompute`), so its weights are
copied once more, last layer first. The weights of a layer always have the same address, so that
autograd has to know nothing of it; kernels and values are those of a training without it, and so
are the bits.

The weights are not read into memory: they are the mapped files of the base, whose pages all ranks
of a machine share. An accelerator copies from pinned memory alone by itself, so the bytes of a
layer pass through two pinned buffers, which a thread fills.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter

from tunery.ml.device import free_memory
from tunery.ml.exchange import bytes_of
from tunery.ml.free_memory import machine_bytes
from tunery.work.exits import WorkError
from tunery.work.spec import Hyper

PIECE_BYTES: Final = 64 * 1024 * 1024  # of a pinned buffer
# Kernels are chosen by it, too: an accelerator's allocator aligns tensors so; on a processor they
# lie in a buffer as they lie in their file.
ALIGNMENT_BYTES: Final = 512
SLOTS: Final = 2
SCORING: Final = 1.25  # of the memory of a base: what scoring with it needs


@dataclass(frozen=True)
class _Frozen:
    """A weight that is not trained: what it is in the machine's memory, and where in a buffer."""

    weight: Parameter
    kept: Tensor
    begin: int


def check_offload(folder: Path, hyper: Hyper) -> None:
    """Raises WorkError("user") for what is not trained so, ("bad_node") where the machine has too
    little memory for the base.
    """
    if hyper.adaptation == "qlora":
        raise refused_offload("with qlora the device itself makes the four bits of all layers")
    if hyper.dora:
        raise refused_offload("with dora the device measures the weights of all layers first")
    needed, has = _size(folder), machine_bytes()
    if 0 < has < needed:
        message = (
            f"training.offload keeps the base in the machine's memory: its files have "
            f"{needed / 1e9:.1f} GB, and the machine has {has / 1e9:.1f} GB"
        )
        raise WorkError("bad_node", message, "Use nodes with more memory, or a smaller model.")


def outgrows(folder: Path, device: torch.device) -> bool:
    """Whether an accelerator has too little memory to score with a base that it keeps."""
    return device.type == "cuda" and SCORING * _size(folder) > free_memory(device)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def refused_offload(why: str) -> WorkError:
    """The error for a training whose layers cannot be streamed."""
    message = f"training.offload keeps the layers of the base in the machine's memory: {why}"
    return WorkError("user", message, "Set training.offload to false.")


class StreamedLayers:
    """Decoder layers whose frozen weights are copied to a device whenever they are needed.

    Raises WorkError("user") for a base that has no plain list of such layers.
    """

    def __init__(self, base: Any, device: torch.device) -> None:
        """What is trained stays where it is; `base.to` moves it."""
        self._layers = _decoder_layers(base)
        frozen = [_laid_out(layer, device) for layer in self._layers]
        size = max(_end(weights) for weights in frozen)
        self._buffers = [_buffer(size, device) for _ in range(SLOTS)]
        self._frozen = frozen
        self._held: list[int | None] = [None] * SLOTS
        self._copies: list[Future[None]] = [Future() for _ in range(SLOTS)]
        self._current: int | None = None
        self._bus = _Bus(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "offload")
        for number, (layer, weights) in enumerate(zip(self._layers, frozen, strict=True)):
            for weight, view in zip(weights, self._views(number), strict=True):
                weight.weight.data = view
            for module in _with_any(layer, {id(weight.weight) for weight in weights}):
                # Of each module, not of the layer: a layer that is computed again is not called.
                module.register_forward_pre_hook(partial(self._before, number))

    @property
    def kept_bytes(self) -> int:
        """Of all weights that stay in the machine's memory."""
        return sum(weight.kept.nbytes for weights in self._frozen for weight in weights)

    def pass_all(self) -> None:
        """Have each layer on the device once, as a pass that computes nothing."""
        self._current = None
        with torch.no_grad():
            for number in range(len(self._layers)):
                self._before(number)

    def _before(self, number: int, *_: object) -> None:
        """Have the weights of a layer on the device, and begin to copy those of the next one."""
        self._check_checkpointing(number)
        if number == self._current:
            return
        before, self._current = self._current, number
        self._begin_copy(number)
        slot = number % SLOTS
        self._copies[slot].result()
        if self._bus is not None:
            self._bus.wait(slot)
        following = self._following(before, number)
        if following is not None:
            self._begin_copy(following)

    def _following(self, before: int | None, number: int) -> int | None:
        """The next layer, by the way that the last two went. At either end the passes turn."""
        last = len(self._layers) - 1
        if last == 0:
            return None
        if number in (0, last):
            return 1 if number == 0 else last - 1
        return number - 1 if before is not None and before > number else number + 1

    def _check_checkpointing(self, number: int) -> None:
        """Raises RuntimeError where a backward pass would find the weights of another layer."""
        layer: Any = self._layers[number]
        if torch.is_grad_enabled() and not (layer.training and layer.gradient_checkpointing):
            raise RuntimeError("layers that are streamed are trained with recompute only")

    def _begin_copy(self, number: int) -> None:
        """All that used the buffer before was asked of the device already."""
        slot = number % SLOTS
        if self._held[slot] == number:
            return
        self._held[slot] = number
        if self._bus is not None:
            self._bus.follow(slot)
        self._copies[slot] = self._thread.submit(self._copy, number)

    def _copy(self, number: int) -> None:
        views, weights = self._views(number), self._frozen[number]
        pairs = [(weight.kept, view) for weight, view in zip(weights, views, strict=True)]
        if self._bus is not None:
            self._bus.copy(number % SLOTS, pairs)
            return
        for kept, view in pairs:
            view.copy_(kept)

    def _views(self, number: int) -> list[Tensor]:
        """Where the weights of a layer are on the device."""
        buffer = self._buffers[number % SLOTS]
        return [
            buffer[weight.begin : weight.begin + weight.kept.nbytes]
            .view(weight.kept.dtype)
            .view(weight.kept.shape)
            for weight in self._frozen[number]
        ]


class _Bus:
    """Copies to an accelerator on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch
        self._free, self._ready, self._sent = _events(), _events(), _events()
        self._pinned = [
            torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(SLOTS)
        ]
        self._piece = 0

    def follow(self, slot: int) -> None:
        """Let the next copy into a buffer wait for what the caller's stream was asked until now."""
        self._free[slot].record(torch.cuda.current_stream(self._device))

    def wait(self, slot: int) -> None:
        """Let the caller's stream wait for the last copy into a buffer."""
        self._ready[slot].wait(torch.cuda.current_stream(self._device))

    def copy(self, slot: int, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Ask for the copies of weights; returns when the machine's part of it is done."""
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            self._free[slot].wait(self._stream)
            for kept, view in pairs:
                for source, target in zip(_pieces(kept), _pieces(view), strict=True):
                    number, self._piece = self._piece, (self._piece + 1) % SLOTS
                    self._sent[number].synchronize()
                    pinned = self._pinned[number][: len(source)]
                    pinned.copy_(source)
                    target.copy_(pinned, non_blocking=True)
                    self._sent[number].record(self._stream)
            self._ready[slot].record(self._stream)


def _events() -> list[torch.cuda.Event]:
    return [torch.cuda.Event() for _ in range(SLOTS)]  # type: ignore[no-untyped-call]  # torch


def _decoder_layers(base: Any) -> ModuleList:
    decoder = getattr(base, base.base_model_prefix, None)
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, ModuleList) or not all(
        hasattr(layer, "gradient_checkpointing") for layer in layers
    ):
        raise refused_offload(f"{base.config.model_type} has no plain list of decoder layers")
    return layers


def _laid_out(layer: Module, device: torch.device) -> list[_Frozen]:
    """The frozen weights of a layer, each with its place in a buffer."""
    laid: list[_Frozen] = []
    for weight in layer.parameters():
        if weight.requires_grad:
            continue
        begin, kept = _end(laid), weight.data
        if device.type == "cpu":
            begin += (kept.data_ptr() - begin) % ALIGNMENT_BYTES
        else:
            begin += -begin % ALIGNMENT_BYTES
        laid.append(_Frozen(weight, kept.contiguous(), begin))
    return laid


def _end(laid: Sequence[_Frozen]) -> int:
    return laid[-1].begin + laid[-1].kept.nbytes if laid else 0


def _buffer(size: int, device: torch.device) -> Tensor:
    """Bytes on a device, the first of them aligned."""
    whole = torch.empty(size + ALIGNMENT_BYTES, dtype=torch.uint8, device=device)
    return whole[-whole.data_ptr() % ALIGNMENT_BYTES :][:size]


def _with_any(layer: Module, weights: set[int]) -> Iterator[Module]:
    """Modules that have some of the weights themselves."""
    for module in layer.modules():
        if any(id(weight) in weights for weight in module.parameters(recurse=False)):
            yield module


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """The bytes of a tensor, so many at a time that a pinned buffer has room for them."""
    return iter(torch.split(bytes_of(tensor), PIECE_BYTES))
