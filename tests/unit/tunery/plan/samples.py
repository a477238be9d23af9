"""One base model, and token counts and jobs for it."""

from typing import Any, Final

from msgspec.structs import replace

from schemas.dataset import BaseTokens
from schemas.model import Base, BaseProof
from schemas.submission import JobSpec
from schemas.training import HyperParameters
from simulator.control_plane.samples import spec

SMOL = Base(
    base_id="smollm2-135m-instruct",
    sha256="a" * 64,
    path="/models/smol",
    parameters=134_515_008,
    context_length=8192,
    family="llama",
    licence="apache-2.0",
    hidden_size=576,
)

PROOF: Final = BaseProof(
    weights="random",
    adaptations=("lora",),
    packs=False,
    targets=("in_proj", "q_proj"),
    streams=True,
    end_token="<|im_end|>",
    tools=True,
    reasoning=False,
    libraries={},
    weights_bytes=16_000_000_000,
    step_tokens=432,
    lora_bytes=1_141_000_000,
    full_bytes=1_223_000_000,
    kept_ppm=2_950_000,
)

# Weights, hidden size, layers, inner size and tokens, by the configurations that are published.
SHAPES: Final = {
    "Llama-3.2-1B": (1_235_814_400, 2_048, 16, 8_192, 128_256),
    "Qwen2.5-7B": (7_615_616_512, 3_584, 28, 18_944, 152_064),
    "Qwen2.5-14B": (14_770_033_664, 5_120, 48, 13_824, 152_064),
    "Qwen2.5-32B": (32_763_876_352, 5_120, 64, 27_648, 152_064),
    "Llama-3.1-8B": (8_030_261_248, 4_096, 32, 14_336, 128_256),
    "Llama-3.1-70B": (70_553_706_496, 8_192, 80, 28_672, 128_256),
}


def base_of(name: str) -> Base:
    """A base with the shape that is published under a name."""
    parameters, hidden, layers, inner, vocabulary = SHAPES[name]
    return replace(
        SMOL,
        base_id=name.lower(),
        parameters=parameters,
        hidden_size=hidden,
        layers=layers,
        inner_size=inner,
        vocabulary=vocabulary,
    )


def tokens(count: int, longest: int = 100) -> BaseTokens:
    return BaseTokens(
        base_id=SMOL.base_id,
        base_sha256=SMOL.sha256,
        tokens=count,
        trainable_tokens=count // 2,
        longest_row_tokens=longest,
    )


def job(hyper: HyperParameters, **changes: Any) -> JobSpec:
    return spec(**{"base": SMOL, "hyper": hyper, "validation_fraction_ppm": 0, **changes})
