"""What the ranks of a training tell each other in a step, and how long that takes.

Each rank copies its gradients to the memory of the machine, adds those of all ranks there, and
copies the sum back (`tunery.ml.ranks`). Nothing else is done meanwhile.
"""

from typing import Final

from schemas.model import Base
from schemas.training import Device, HyperParameters
from schemas.units import Ms, divide_up
from tunery.plan.memory import trained_weights

GRADIENT_BYTES: Final = 4  # fp32, as the masters are
# A rank reads the gradients of each rank, and writes its own before: 8 MiB of two ranks took 1.2 ms
# and of four 2.0 ms (measured, one thread).
ADDED_BYTES_PER_MS: Final = 20_000_000
# To a device and back: PCIe 4.0 moves 31.5 GB/s over 16 lanes in theory. Not measured.
BUS_BYTES_PER_MS: Final = 20_000_000


def exchanged_bytes(base: Base, hyper: HyperParameters) -> int:
    """What each rank tells the others in a step."""
    return GRADIENT_BYTES * trained_weights(base, hyper)


def exchange_ms(base: Base, hyper: HyperParameters, ranks: int, device: Device) -> Ms:
    """Expected time of a step for it; one rank tells nobody anything."""
    if ranks == 1:
        return 0
    size = exchanged_bytes(base, hyper)
    copied = 2 * size if device == "cuda" else 0
    return divide_up(copied, BUS_BYTES_PER_MS) + divide_up((ranks + 1) * size, ADDED_BYTES_PER_MS)
