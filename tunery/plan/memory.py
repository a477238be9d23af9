"""Peak memory of one training slot, from the sizes of the model and of a packed row."""

from collections.abc import Mapping
from typing import Final

from schemas.model import Base
from schemas.training import Device, HyperParameters
from schemas.units import divide_up

# LoRA on all linear layers has about 1.6 × parameters / hidden size parameters per rank
# (measured 1.3 for SmolLM2-135M, 1.34 for Llama-3.1-8B with their embeddings counted).
LORA_TENTHS: Final = 16
LORA_BYTES: Final = 16  # fp32 adapter, gradient, two Adam moments
LAYER_PARAMETERS_PER_HIDDEN_SQUARED: Final = 12
WEIGHT_BYTES: Final[Mapping[Device, int]] = {"cpu": 4, "cuda": 2}
# Bytes per token, hidden unit and layer: 34 without recompute (Korthikanti et al. 2022, "Reducing
# activation recomputation in large transformer models"), 2 with full recompute.
ACTIVATION_BYTES: Final[Mapping[Device, int]] = {"cpu": 34, "cuda": 2}
OVERHEAD_BYTES: Final = 1_200_000_000  # process, libraries, allocator: 2.2 GB RSS seen for 135 M


def memory_bytes(base: Base, hyper: HyperParameters, device: Device) -> int:
    """Peak memory of one slot: weights, adapter with optimizer, activations, the process itself."""
    hidden = max(base.hidden_size, 1)
    adapter = LORA_TENTHS * hyper.rank * base.parameters // (10 * hidden)
    layers = divide_up(base.parameters, LAYER_PARAMETERS_PER_HIDDEN_SQUARED * hidden * hidden)
    activations = ACTIVATION_BYTES[device] * hyper.max_length * hidden * layers
    weights = WEIGHT_BYTES[device] * base.parameters
    return weights + LORA_BYTES * adapter + activations + OVERHEAD_BYTES
