"""Hyper-parameters of a request: their ranges, and the rules behind "auto"."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as repr_short
from typing import Any, Final, Literal, TypeAlias

from schemas.dataset import BaseTokens
from schemas.envelope import Reason
from schemas.model import Base
from schemas.training import Device, HyperParameters
from schemas.units import PPB, PPM, divide_up
from tunery.plan.packing import packed, steps_of_epoch

# "auto"
RANK: Final = 16
DROPOUT_PPM: Final = 50_000
WARMUP_PPM: Final = 50_000
WEIGHT_DECAY_PPM: Final = 0
MAX_LENGTH: Final[Mapping[Device, int]] = {"cpu": 512, "cuda": 2048}
MAX_LENGTH_TOP: Final[Mapping[Device, int]] = {"cpu": 2048, "cuda": 8192}
THREADS: Final[Mapping[Device, int]] = {"cpu": 2, "cuda": 4}  # of a slot; `time` counts two cores
EPOCHS: Final = 3
EPOCHS_MAX: Final = 10
STEPS_MIN: Final = 100  # fewer optimizer steps than this teach an adapter little
LARGE_TOKENS: Final = 5_000_000  # from here one pass is enough
STEPS_PER_EPOCH_MIN: Final = 64
BATCH_MAX: Final = 16
# LR = 5e-5 × 10 × (2000 / hidden)^p (Tinker cookbook, hyperparam_utils.py); LoRA wants about 15 ×
# the full fine-tuning rate in runs under 100 steps ("LoRA without regret").
LR_FULL: Final = 5e-5
LR_LORA: Final = 10
LR_LORA_SHORT: Final = 15
LR_HIDDEN: Final = 2000
LR_EXPONENT: Final[Mapping[str, float]] = {"llama": 0.781, "qwen": 0.0775}
LR_MIN: Final = 2e-4
Number: TypeAlias = int | float
HyperRequest: TypeAlias = Mapping[str, int | float | str | None]
# What a request may name, and the range of each. Everything may be null or "auto".
RANGES: Final[Mapping[str, tuple[Number, Number]]] = {
    "n_epochs": (1, 50),
    "batch_size": (1, 256),
    "learning_rate_multiplier": (0.01, 100),
    "learning_rate": (1e-7, 0.1),
    "rank": (1, 256),
    "alpha": (1, 1024),
    "dropout": (0, 0.9),
    "warmup_ratio": (0, 0.9),
    "weight_decay": (0, 1),
    "max_length": (64, 131_072),
    "checkpoint_every_steps": (1, 10_000),
    "checkpoint_every_ms": (1_000, 600_000),
    "keep_checkpoints": (1, 20),
    "threads": (1, 64),
}
WHOLE: Final = frozenset(RANGES) - {
    "learning_rate_multiplier",
    "learning_rate",
    "dropout",
    "warmup_ratio",
    "weight_decay",
}
PRECISIONS: Final = ("auto", "bf16", "fp32")


# Why a parameter cannot be used. Names after a code are the parameters of its reason.
ParameterCode: TypeAlias = Literal[
    "unknown",  # known
    "precision_unknown",  # known
    "two_learning_rates",
    "not_whole_in_range",  # name, low, high, value
    "not_in_range",  # name, low, high, value
]


@dataclass(frozen=True)
class ParameterProblem:
    """A parameter of a request that cannot be used: its name, and why."""

    param: str
    reason: Reason


def problems(request: HyperRequest, base: Base) -> tuple[ParameterProblem, ...]:
    """Everything that is wrong with a request, in the order of its fields."""
    named: list[ParameterProblem] = []
    for name, value in request.items():
        reason = _problem(name, value, base)
        if reason is not None:
            named.append(ParameterProblem(name, reason))
    if all(_is_set(request.get(name)) for name in ("learning_rate", "learning_rate_multiplier")):
        both = _parameter_reason("two_learning_rates")
        named.append(ParameterProblem("learning_rate_multiplier", both))
    return tuple(named)


def resolve(
    request: HyperRequest | None,
    base: Base,
    tokens: BaseTokens | None,
    seed: int,
    device: Device = "cpu",
    validation_fraction_ppm: int = 0,
) -> tuple[HyperParameters, tuple[str, ...]]:
    """Numbers for every "auto", and the names of those that were "auto".

    request: without `problems`
    tokens: null while the file is being validated; rules that depend on the data then take their
        middle values
    device: of the node the job will run on
    validation_fraction_ppm: share of the rows that are kept for validation
    """
    requested = {name: value for name, value in (request or {}).items() if _is_set(value)}
    length = _whole(requested, "max_length", _auto_length(base, tokens, device))
    plan = None if tokens is None else packed(tokens, length, validation_fraction_ppm)
    rows = None if plan is None else plan.packed_rows
    batch = _whole(requested, "batch_size", _auto_batch(rows))
    steps_per_epoch = None if rows is None else steps_of_epoch(rows, batch)
    epochs = _whole(requested, "n_epochs", _auto_epochs(steps_per_epoch, tokens))
    steps = None if steps_per_epoch is None else steps_per_epoch * epochs
    rank = _whole(requested, "rank", RANK)
    precision = requested.get("precision", "auto")
    hyper = HyperParameters(
        n_epochs=epochs,
        batch_size=batch,
        learning_rate_ppb=_learning_rate_ppb(requested, base, steps),
        rank=rank,
        alpha=_whole(requested, "alpha", 2 * rank),
        dropout_ppm=_ppm(requested, "dropout", DROPOUT_PPM),
        warmup_ppm=_ppm(requested, "warmup_ratio", WARMUP_PPM),
        weight_decay_ppm=_ppm(requested, "weight_decay", WEIGHT_DECAY_PPM),
        max_length=length,
        seed=seed,
        precision="bf16" if precision == "bf16" else "fp32" if precision == "fp32" else "auto",
        checkpoint_every_steps=_whole(requested, "checkpoint_every_steps", 20),
        checkpoint_every_ms=_whole(requested, "checkpoint_every_ms", 600_000),
        keep_checkpoints=_whole(requested, "keep_checkpoints", 3),
        threads=_whole(requested, "threads", THREADS[device]),
    )
    auto = (n for n in ("n_epochs", "batch_size", "learning_rate", "rank", "alpha", "max_length"))
    named = set(requested)
    if "learning_rate_multiplier" in requested:
        named.add("learning_rate")
    return hyper, tuple(name for name in auto if name not in named)


def _auto_length(base: Base, tokens: BaseTokens | None, device: Device) -> int:
    """The device's default, doubled while a row is longer, within the model's context."""
    length = MAX_LENGTH[device]
    longest = 0 if tokens is None else tokens.longest_row_tokens
    while length < longest and length < MAX_LENGTH_TOP[device]:
        length *= 2
    return min(length, base.context_length)


def _auto_batch(rows: int | None) -> int:
    """Packed rows per step: small data wants many small steps."""
    return 1 if rows is None else max(1, min(BATCH_MAX, rows // STEPS_PER_EPOCH_MIN))


def _auto_epochs(steps_per_epoch: int | None, tokens: BaseTokens | None) -> int:
    if steps_per_epoch is None or tokens is None:
        return EPOCHS
    if tokens.tokens >= LARGE_TOKENS:
        return 1
    return max(EPOCHS, min(EPOCHS_MAX, divide_up(STEPS_MIN, max(steps_per_epoch, 1))))


def _learning_rate_ppb(requested: HyperRequest, base: Base, steps: int | None) -> int:
    if "learning_rate" in requested:
        return max(1, round(float(requested["learning_rate"] or 0) * PPB))
    factor = LR_LORA_SHORT if steps is not None and steps < STEPS_MIN else LR_LORA
    multiplier = float(requested.get("learning_rate_multiplier") or 1)
    return max(1, round(_auto_learning_rate(base, factor) * multiplier * PPB))


def _auto_learning_rate(base: Base, factor: int) -> float:
    exponent = LR_EXPONENT.get(base.family, 0.0)
    rule = LR_FULL * factor * math.pow(LR_HIDDEN / max(base.hidden_size, 1), exponent)
    return max(rule, LR_MIN)


def multiplier_max(base: Base) -> float:
    """Largest multiplier with which the learning rate stays in its range, for runs of any length.

    Rounded down to two decimals.
    """
    most = RANGES["learning_rate"][1] / _auto_learning_rate(base, LR_LORA_SHORT)
    return min(RANGES["learning_rate_multiplier"][1], math.floor(100 * most) / 100)


def _parameter_reason(code: ParameterCode, **params: str | int) -> Reason:
    return Reason(code=code, params=params)


def _problem(name: str, value: int | float | str | None, base: Base) -> Reason | None:
    if name == "precision":
        if value is None or value in PRECISIONS:
            return None
        return _parameter_reason("precision_unknown", known=", ".join(PRECISIONS))
    if name not in RANGES:
        return _parameter_reason("unknown", known=", ".join((*RANGES, "precision")))
    if not _is_set(value):
        return None
    low, high = RANGES[name]
    high = min(high, base.context_length) if name == "max_length" else high
    high = multiplier_max(base) if name == "learning_rate_multiplier" else high
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole or (isinstance(value, float) and name not in WHOLE):
        number: Any = value  # never through float(): JSON has whole numbers above its range
        if low <= number <= high:
            return None
    code: ParameterCode = "not_whole_in_range" if name in WHOLE else "not_in_range"
    return _parameter_reason(code, name=name, low=str(low), high=str(high), value=repr_short(value))


def _is_set(value: int | float | str | None) -> bool:
    return value is not None and value != "auto"


def _whole(requested: HyperRequest, name: str, otherwise: int) -> int:
    return int(requested[name] or 0) if name in requested else otherwise


def _ppm(requested: HyperRequest, name: str, otherwise: int) -> int:
    return round(float(requested[name] or 0) * PPM) if name in requested else otherwise
