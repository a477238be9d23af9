"""One base model, and token counts and jobs for it."""

from typing import Any

from schemas.dataset import BaseTokens
from schemas.model import Base
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
