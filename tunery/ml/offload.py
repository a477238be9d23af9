"""A frozen base whose layers stay in the machine's memory and pass through the device.

The device has two buffers. Layers with even numbers compute in the first, those with odd numbers in
the second: while one computes, its neighbour is copied into the other.

The weights are not read into memory: they are the mapped files of the base, whose pages all ranks
of a machine share. An accelerator copies from pinned memory alone by itself, so the bytes of a
layer pass through two pinned buffers, which a thread fills.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from tunery.ml.device import free_memory
from tunery.ml.exchange import bytes_of
from tunery.ml.free_memory import machine_bytes
from tunery.ml.passing import PassingLayers, decoder_layers
from tunery.work.exits import WorkError
from tunery.work.spec import Hyper

PIECE_BYTES: Final = 64 * 1024 * 1024  # of a pinned buffer
SLOTS: Final = 2
SCORING: Final = 1.25  # of the memory of a base: what scoring with it needs


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


def outgrows(folder: Path, device: torch.device, sides: int = 1) -> bool:
    """Whether an accelerator has too little memory to score with so many models of this size."""
    return device.type == "cuda" and sides * SCORING * _size(folder) > free_memory(device)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def refused_offload(why: str) -> WorkError:
    """The error for a training whose layers cannot be streamed."""
    message = f"training.offload keeps the layers of the base in the machine's memory: {why}"
    return WorkError("user", message, "Set training.offload to false.")


class StreamedLayers(PassingLayers):
    """Decoder layers whose frozen weights are copied to a device whenever they are needed.

    Raises WorkError("user") for a base that has no plain list of such layers.
    """

    def __init__(self, base: Any, device: torch.device) -> None:
        """What is trained stays where it is; `base.to` moves it."""
        layers = decoder_layers(base, refused_offload)
        frozen = [[w for w in layer.parameters() if not w.requires_grad] for layer in layers]
        super().__init__(layers, frozen, device, SLOTS)
        self._kept: list[list[Tensor]] = []
        self._copies: list[Future[None]] = [Future() for _ in range(SLOTS)]
        self._bus = _Bus(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "offload")
        self._attach()

    @property
    def kept_bytes(self) -> int:
        """Of all weights that stay in the machine's memory."""
        return sum(kept.nbytes for of_layer in self._kept for kept in of_layer)

    def _keep(self, number: int) -> None:
        self._kept.append([weight.data.contiguous() for weight in self._weights[number]])

    def _bring(self, number: int, slot: int) -> None:
        if self._bus is not None:
            self._bus.follow(slot)
        self._copies[slot] = self._thread.submit(self._copy, number, slot)

    def _arrive(self, slot: int) -> None:
        self._copies[slot].result()
        if self._bus is not None:
            self._bus.wait(slot)

    def _leave(self, number: int) -> None:
        """It has no gradients."""

    def _copy(self, number: int, slot: int) -> None:
        pairs = list(zip(self._kept[number], self.views[number], strict=True))
        if self._bus is not None:
            self._bus.copy(slot, pairs)
            return
        for kept, view in pairs:
            view.copy_(kept)


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


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """The bytes of a tensor, so many at a time that a pinned buffer has room for them."""
    return iter(torch.split(bytes_of(tensor), PIECE_BYTES))
