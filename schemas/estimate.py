"""What a job will need, before it runs: pure arithmetic, integers out.

The gateway resolves a request with `resolve` and shows `estimate`; the `job` decider takes its hold
from the same `estimate`. Every figure below names its source; `hold_gpu_ms` bounds them all.
"""

import math
from collections.abc import Mapping
from reprlib import repr as repr_short
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from schemas.account import Lane
from schemas.dataset import BaseTokens, PackPlan
from schemas.envelope import Part
from schemas.job import Budget, Estimate, JobSpec, Price
from schemas.model import Base
from schemas.training import Device, HyperParameters
from schemas.units import HOUR_MS, GpuMs, Micro, Ms

PPM: Final = 1_000_000
PPB: Final = 1_000_000_000
MINUTE_MS: Final = 60_000

# LoRA trains at 4 FLOPs per parameter and token: forward 2, backward 2 (frozen weights need no
# weight gradients). Hence, for one slot (two cores): 313 packed tokens a second, measured on
# SmolLM2-135M in bf16 with the head on labelled rows only, × 4 × 135 M = 0.17 TFLOP/s.
FLOPS_PER_PARAMETER: Final = 4
FLOPS_PER_MS: Final[Mapping[Device, int]] = {
    "cpu": 169_000_000,
    # 40 % of an H100's 989 TFLOP/s dense bf16 would be 395; published LoRA rates are about half
    # of that with recompute (8 k tokens/s for an 8 B model), so 200.
    "cuda": 200_000_000_000,
}
# Imports take 6 to 15 s, the packing self-check and the first step the rest (measured, two cores).
START_UP_MS: Final = 60_000
LOAD_PARAMETERS_PER_MS: Final = 250_000  # bf16 weights at 0.5 GB/s, a slow disk
# Scoring base and adapter on 200 items and a small holdout: 150 s for 135 M parameters on one slot.
EVAL_FLOPS_PER_PARAMETER: Final = 150_000 * FLOPS_PER_MS["cpu"] // 135_000_000
# A hold must never be passed, so it is generous: what is not used is released at the end.
HOLD_FACTOR: Final = 3
HOLD_MS_MIN: Final = 15 * MINUTE_MS  # per slot, for training and for evaluation each

# Memory. LoRA on all linear layers has about 1.6 × parameters / hidden size parameters per rank
# (measured 1.3 for SmolLM2-135M, 1.34 for Llama-3.1-8B with their embeddings counted).
LORA_TENTHS: Final = 16
LORA_BYTES: Final = 16  # fp32 adapter, gradient, two Adam moments
LAYER_PARAMETERS_PER_HIDDEN_SQUARED: Final = 12
WEIGHT_BYTES: Final[Mapping[Device, int]] = {"cpu": 4, "cuda": 2}
# Bytes per token, hidden unit and layer: 34 without recompute (Korthikanti et al. 2022, "Reducing
# activation recomputation in large transformer models"), 2 with full recompute.
ACTIVATION_BYTES: Final[Mapping[Device, int]] = {"cpu": 34, "cuda": 2}
OVERHEAD_BYTES: Final = 1_200_000_000  # process, libraries, allocator: 2.2 GB RSS seen for 135 M

# "auto"
RANK: Final = 16
DROPOUT_PPM: Final = 50_000
WARMUP_PPM: Final = 50_000
WEIGHT_DECAY_PPM: Final = 0
MAX_LENGTH: Final[Mapping[Device, int]] = {"cpu": 512, "cuda": 2048}
MAX_LENGTH_TOP: Final[Mapping[Device, int]] = {"cpu": 2048, "cuda": 8192}
EPOCHS: Final = 3
EPOCHS_MAX: Final = 10
STEPS_WANTED: Final = 100  # fewer optimizer steps than this teach an adapter little
LARGE_TOKENS: Final = 5_000_000  # from here one pass is enough
STEPS_PER_EPOCH_WANTED: Final = 64
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
}
WHOLE: Final = frozenset(RANGES) - {
    "learning_rate_multiplier",
    "learning_rate",
    "dropout",
    "warmup_ratio",
    "weight_decay",
}
PRECISIONS: Final = ("auto", "bf16", "fp32")


class PriceBook(Part):
    """A versioned file: what a GPU-hour costs per lane, and a million trained tokens."""

    version: str
    currency: str
    gpu_hour_micro: dict[str, Micro]
    token_micro_per_million: Micro

    def price(self, lane: Lane) -> Price:
        """Raises KeyError when the book has no price for the lane."""
        return Price(
            version=self.version,
            currency=self.currency,
            gpu_hour_micro=self.gpu_hour_micro[lane],
            token_micro_per_million=self.token_micro_per_million,
        )


def load_prices(data: bytes) -> PriceBook:
    """Read a price book file. Raises msgspec.ValidationError, which names the field."""
    return msgspec.json.decode(data, type=PriceBook)


class Problem(Part):
    """A hyper-parameter that cannot be used: its name in the request, and what to do."""

    param: str
    message: str


def problems(request: HyperRequest, base: Base) -> tuple[Problem, ...]:
    """All that is wrong with a request, in the order of its fields."""
    found: list[Problem] = []
    for name, value in request.items():
        message = _problem(name, value, base)
        if message is not None:
            found.append(Problem(param=name, message=message))
    if _given(request, "learning_rate") and _given(request, "learning_rate_multiplier"):
        text = "give learning_rate or learning_rate_multiplier, not both"
        found.append(Problem(param="learning_rate_multiplier", message=text))
    return tuple(found)


def resolve(
    request: HyperRequest | None,
    base: Base,
    tokens: BaseTokens | None,
    seed: int,
    device: Device = "cpu",
    validation_fraction_ppm: int = 0,
) -> tuple[HyperParameters, tuple[str, ...]]:
    """Numbers for every "auto", and the names of those that were.

    Expects a request without `problems`. `tokens` is null while the file is being validated:
    rules that depend on the data then take their middle values.
    """
    wish = {name: value for name, value in (request or {}).items() if _is_given(value)}
    length = _whole(wish, "max_length", _auto_length(base, tokens, device))
    plan = None if tokens is None else packed(tokens, length, validation_fraction_ppm)
    rows = None if plan is None else plan.packed_rows
    batch = _whole(wish, "batch_size", _auto_batch(rows))
    steps_per_epoch = None if rows is None else steps_of_epoch(rows, batch)
    epochs = _whole(wish, "n_epochs", _auto_epochs(steps_per_epoch, tokens))
    steps = None if steps_per_epoch is None else steps_per_epoch * epochs
    rank = _whole(wish, "rank", RANK)
    precision = wish.get("precision", "auto")
    hyper = HyperParameters(
        n_epochs=epochs,
        batch_size=batch,
        learning_rate_ppb=_learning_rate_ppb(wish, base, steps),
        rank=rank,
        alpha=_whole(wish, "alpha", 2 * rank),
        dropout_ppm=_ppm(wish, "dropout", DROPOUT_PPM),
        warmup_ppm=_ppm(wish, "warmup_ratio", WARMUP_PPM),
        weight_decay_ppm=_ppm(wish, "weight_decay", WEIGHT_DECAY_PPM),
        max_length=length,
        seed=seed,
        precision="bf16" if precision == "bf16" else "fp32" if precision == "fp32" else "auto",
        checkpoint_every_steps=_whole(wish, "checkpoint_every_steps", 20),
        checkpoint_every_ms=_whole(wish, "checkpoint_every_ms", 600_000),
        keep_checkpoints=_whole(wish, "keep_checkpoints", 3),
    )
    auto = (n for n in ("n_epochs", "batch_size", "learning_rate", "rank", "alpha", "max_length"))
    named = wish.keys() | ({"learning_rate"} if "learning_rate_multiplier" in wish else set())
    return hyper, tuple(name for name in auto if name not in named)


def estimate(spec: JobSpec, tokens: BaseTokens) -> Estimate:
    """Expected use of one job in GPU-milliseconds (slots × elapsed), its hold, memory and price.

    Steps and trained tokens are those that will run, where `packed` knows them; the time is that of
    all rows, as those that validate pass through the model as well.
    """
    base, hyper, slots, device = spec.base, spec.hyper, spec.slots, spec.device
    if spec.length_policy == "split" and tokens.longest_row_tokens > hyper.max_length:
        # each part begins with the last token before it
        again = tokens.tokens // (hyper.max_length - 1)
        tokens = replace(tokens, tokens=tokens.tokens + again)
    plan = packed(tokens, hyper.max_length, spec.validation_fraction_ppm)
    trained = plan.tokens * hyper.n_epochs
    train = slots * train_ms(base, tokens.tokens * hyper.n_epochs, slots, device)
    evaluate = slots * eval_ms(base, slots, device)
    hold = hold_of(train, slots) + hold_of(evaluate, slots)
    return Estimate(
        tokens=trained,
        steps=steps_of_epoch(plan.packed_rows, hyper.batch_size) * hyper.n_epochs,
        train_gpu_ms=train,
        eval_gpu_ms=evaluate,
        hold_gpu_ms=hold,
        memory_bytes=memory_bytes(base, hyper, device),
        price_micro=price_micro(spec.price, train + evaluate, trained),
        price_max_micro=price_micro(spec.price, hold, trained),
        currency=spec.price.currency,
    )


def packed(tokens: BaseTokens, max_length: int, fraction_ppm: int) -> PackPlan:
    """Rows and tokens of an epoch: as the check found them, else by proportion."""
    plans = {(plan.max_length, plan.validation_fraction_ppm): plan for plan in tokens.plans}
    if (known := plans.get((max_length, fraction_ppm))) is not None:
        return known
    whole = plans.get((max_length, 0))
    rows = _ceil(tokens.tokens, max_length) if whole is None else whole.packed_rows
    train_ppm = PPM - fraction_ppm
    return PackPlan(
        max_length=max_length,
        validation_fraction_ppm=fraction_ppm,
        packed_rows=_ceil(rows * train_ppm, PPM),
        tokens=_ceil(tokens.tokens * train_ppm, PPM),
    )


def steps_of_epoch(packed_rows: int, rows_per_step: int) -> int:
    """Optimizer steps: the last one takes what is left over."""
    return _ceil(packed_rows, rows_per_step)


def over_budget(budget: Budget | None, needs: Estimate) -> str | None:
    """Why a job may not begin under its budget, for people; None: it may."""
    if budget is None:
        return None
    gpu_ms, amount = budget.max_gpu_ms, budget.max_amount_micro
    if gpu_ms is not None and gpu_ms < needs.hold_gpu_ms:
        kind, most, may = "GPU-hours", _hundredths(needs.hold_gpu_ms, HOUR_MS), gpu_ms / HOUR_MS
    elif amount is not None and amount < needs.price_max_micro:
        kind, most, may = needs.currency, _hundredths(needs.price_max_micro, PPM), amount / PPM
    else:
        return None
    return (
        f"the job may need up to {most} {kind}, which is held until it ends, and its budget is "
        f"{may:.2f}; raise the budget, or lower n_epochs"
    )


def train_ms(base: Base, tokens: int, slots: int, device: Device) -> Ms:
    flops = tokens * FLOPS_PER_PARAMETER * base.parameters
    return _start_ms(base) + _ceil(flops, FLOPS_PER_MS[device] * slots)


def eval_ms(base: Base, slots: int, device: Device) -> Ms:
    flops = EVAL_FLOPS_PER_PARAMETER * base.parameters
    return _start_ms(base) + _ceil(flops, FLOPS_PER_MS[device] * slots)


def hold_of(gpu_ms: GpuMs, slots: int) -> GpuMs:
    """Upper bound kept for something that is expected to take `gpu_ms`."""
    return max(HOLD_FACTOR * gpu_ms, HOLD_MS_MIN * slots)


def memory_bytes(base: Base, hyper: HyperParameters, device: Device) -> int:
    """Peak of one slot: weights, adapter with optimizer, activations, the process itself."""
    hidden = max(base.hidden_size, 1)
    adapter = LORA_TENTHS * hyper.rank * base.parameters // (10 * hidden)
    layers = _ceil(base.parameters, LAYER_PARAMETERS_PER_HIDDEN_SQUARED * hidden * hidden)
    activations = ACTIVATION_BYTES[device] * hyper.max_length * hidden * layers
    weights = WEIGHT_BYTES[device] * base.parameters
    return weights + LORA_BYTES * adapter + activations + OVERHEAD_BYTES


def price_micro(price: Price, gpu_ms: GpuMs, tokens: int) -> Micro:
    """Rounded up: an estimate never promises less than the invoice will say."""
    time = _ceil(gpu_ms * price.gpu_hour_micro, HOUR_MS)
    return time + _ceil(tokens * price.token_micro_per_million, PPM)


def line_micro(gpu_ms: GpuMs, gpu_hour_micro: Micro) -> Micro:
    """What one line of an invoice costs (credits: negative), rounded half to even."""
    whole, rest = divmod(gpu_ms * gpu_hour_micro, HOUR_MS)
    return whole + (2 * rest > HOUR_MS or (2 * rest == HOUR_MS and whole % 2 == 1))


# --- rules behind "auto" --------------------------------------------------------------------------


def _auto_length(base: Base, tokens: BaseTokens | None, device: Device) -> int:
    """The device's default, doubled while a row is longer, within the model's context."""
    length = MAX_LENGTH[device]
    longest = 0 if tokens is None else tokens.longest_row_tokens
    while length < longest and length < MAX_LENGTH_TOP[device]:
        length *= 2
    return min(length, base.context_length)


def _auto_batch(rows: int | None) -> int:
    """Packed rows per step: small data wants many small steps."""
    return 1 if rows is None else max(1, min(BATCH_MAX, rows // STEPS_PER_EPOCH_WANTED))


def _auto_epochs(steps_per_epoch: int | None, tokens: BaseTokens | None) -> int:
    if steps_per_epoch is None or tokens is None:
        return EPOCHS
    if tokens.tokens >= LARGE_TOKENS:
        return 1
    return max(EPOCHS, min(EPOCHS_MAX, _ceil(STEPS_WANTED, max(steps_per_epoch, 1))))


def _learning_rate_ppb(wish: HyperRequest, base: Base, steps: int | None) -> int:
    if "learning_rate" in wish:
        return max(1, round(float(wish["learning_rate"] or 0) * PPB))
    factor = LR_LORA_SHORT if steps is not None and steps < STEPS_WANTED else LR_LORA
    multiplier = float(wish.get("learning_rate_multiplier") or 1)
    return max(1, round(_auto_learning_rate(base, factor) * multiplier * PPB))


def _auto_learning_rate(base: Base, factor: int) -> float:
    exponent = LR_EXPONENT.get(base.family, 0.0)
    rule = LR_FULL * factor * math.pow(LR_HIDDEN / max(base.hidden_size, 1), exponent)
    return max(rule, LR_MIN)


def multiplier_max(base: Base) -> float:
    """Whatever the run's length, the learning rate stays in its own range. Two decimals."""
    most = RANGES["learning_rate"][1] / _auto_learning_rate(base, LR_LORA_SHORT)
    return min(RANGES["learning_rate_multiplier"][1], math.floor(100 * most) / 100)


def _problem(name: str, value: int | float | str | None, base: Base) -> str | None:
    if name == "precision":
        known = ", ".join(PRECISIONS)
        return None if value is None or value in PRECISIONS else f"precision must be one of {known}"
    if name not in RANGES:
        return f"unknown hyper-parameter; known: {', '.join((*RANGES, 'precision'))}"
    if not _is_given(value):
        return None
    low, high = RANGES[name]
    high = min(high, base.context_length) if name == "max_length" else high
    high = multiplier_max(base) if name == "learning_rate_multiplier" else high
    kind = "a whole number" if name in WHOLE else "a number"
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole or (isinstance(value, float) and name not in WHOLE):
        number: Any = value  # never through float(): JSON has whole numbers above its range
        if low <= number <= high:
            return None
    return f'{name} must be {kind} from {low} to {high}, or "auto"; it is {repr_short(value)}'


def _is_given(value: int | float | str | None) -> bool:
    return value is not None and value != "auto"


def _given(request: HyperRequest, name: str) -> bool:
    return _is_given(request.get(name))


def _whole(wish: HyperRequest, name: str, otherwise: int) -> int:
    return int(wish[name] or 0) if name in wish else otherwise


def _ppm(wish: HyperRequest, name: str, otherwise: int) -> int:
    return round(float(wish[name] or 0) * PPM) if name in wish else otherwise


def _start_ms(base: Base) -> Ms:
    return START_UP_MS + base.parameters // LOAD_PARAMETERS_PER_MS


def _hundredths(value: int, unit: int) -> str:
    """Rounded up."""
    found = _ceil(100 * value, unit)
    return f"{found // 100}.{found % 100:02}"


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)
