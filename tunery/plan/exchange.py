"""What the ranks of a training tell each other in a step, and how long that takes.

Each rank writes its gradients into memory that all share, and adds there what all ranks have of its
share of the weights. It steps these, writes them, and reads all others (`tunery.ml.ranks`). With
`shard_weights` it does so for each micro-batch, and twice with the weights: in either pass.
Nothing else is done meanwhile. A row that is compared with the model before training passes once
more before that.
"""

from typing import Final

from schemas.model import Base
from schemas.training import Device, HyperParameters
from schemas.units import Ms, divide_up
from tunery.plan.memory import (
    GRADIENT_BYTES,
    WIDTH,
    precision_of,
    streamed_bytes,
    trained_weights,
)
from tunery.plan.methods import NEED_REFERENCE

# What a rank writes and reads in memory, where it is more than caches hold: 67 MB of gradients of
# two ranks took 15.9 ms, and weights of as many bytes 8.2 ms (measured, one thread each).
MOVED_BYTES_PER_MS: Final = 8_000_000
# To a device and back: PCIe 4.0 moves 31.5 GB/s over 16 lanes in theory. Not measured.
BUS_BYTES_PER_MS: Final = 20_000_000
PASSES: Final = 2  # of a micro-batch over the layers: forward and backward


def exchanged_bytes(base: Base, hyper: HyperParameters) -> int:
    """Of the gradients that each rank tells the others in a step, or for each micro-batch."""
    return GRADIENT_BYTES * trained_weights(base, hyper)


def exchange_ms(base: Base, hyper: HyperParameters, ranks: int, device: Device) -> Ms:
    """Expected time of a step for it; one rank tells nobody anything.

    It hardly depends on how many ranks there are: each adds less, the more there are.
    """
    if ranks == 1:
        return 0
    gradients = exchanged_bytes(base, hyper)
    weights = WIDTH[precision_of(hyper, device)] * trained_weights(base, hyper)
    if hyper.shard_weights:
        rounds = divide_up(hyper.accumulation, ranks)
        gradients *= rounds
        weights += (PASSES * rounds - 1) * streamed_bytes(base, hyper, device)
    moved = 2 * gradients + weights  # in and out; of the weights one part in, and all others out
    over_bus = gradients + divide_up(gradients, ranks) + weights
    return _moving_ms(moved, over_bus, device)


def reference_ms(base: Base, hyper: HyperParameters, ranks: int, device: Device, rows: int) -> Ms:
    """Expected time of it before the first step, where weights are in shares and need a reference.

    rows: packed ones, each of which is a pass over the layers
    """
    if not hyper.shard_weights or hyper.method not in NEED_REFERENCE:
        return 0
    weights = divide_up(rows, ranks) * streamed_bytes(base, hyper, device)
    return _moving_ms(weights, weights, device)


def _moving_ms(moved: int, over_bus: int, device: Device) -> Ms:
    bus_ms = divide_up(over_bus, BUS_BYTES_PER_MS) if device == "cuda" else 0
    return bus_ms + divide_up(moved, MOVED_BYTES_PER_MS)
