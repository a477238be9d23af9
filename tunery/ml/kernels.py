"""Which kernels each kind of device trains with, and where that was measured.

Layers are compiled (`torch.compile`) on none, as that was not measured.

`python -m bench.gpu --json` has what a row of a GPU that nobody measured would be filled from:
tokens a second beside TRL and TRL with Liger, and its kinds of attention beside each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """A row of the table."""

    # all documents of packed rows at once, by FlashAttention; else one after the other by SDPA on
    # a processor, and SDPA with a mask on a GPU
    flash: bool
    fused_layers: bool  # norms, SwiGLU and rotations by Liger
    fused_head: bool  # losses of labels in chunks, by TRL
    measured: str = ""  # device, date and page; empty: not measured


PROCESSOR: Final = Kernels(
    flash=False,
    fused_layers=False,
    fused_head=False,
    measured="bench.trainer on two threads of a core: bench/results/trainer.json",
)
# By compute capability; a GPU between two has the row of the smaller one.
GPUS: Final[Mapping[tuple[int, int], Kernels]] = {
    (0, 0): Kernels(flash=False, fused_layers=True, fused_head=True),  # older ones
    (8, 0): Kernels(flash=True, fused_layers=True, fused_head=True),  # Ampere and Ada
    (9, 0): Kernels(
        flash=True,
        fused_layers=True,
        fused_head=True,
        measured="an H100 and an H200, 2026-11-28, docs/how-to/gpu-machine.md",
    ),
    (10, 0): Kernels(flash=True, fused_layers=True, fused_head=True),  # Blackwell
}


def kernels_of(device: torch.device) -> Kernels:
    """The row of a device."""
    if device.type == "cpu":
        return PROCESSOR
    capability = torch.cuda.get_device_capability(device)
    return GPUS[max(each for each in GPUS if each <= capability)]


def unmeasured(device: torch.device) -> list[str]:
    """Note in a training's log about kernels that were not measured on such a device."""
    if kernels_of(device).measured:
        return []
    name = torch.cuda.get_device_name(device)
    return [f"the fastest kernels on {name} were not measured: see bench.gpu"]
