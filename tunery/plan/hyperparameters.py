"""Hyper-parameters of a request: their ranges, and the rules behind "auto"."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import repr as repr_short
from typing import Any, Final, Literal, TypeAlias

from schemas.dataset import BaseTokens
from schemas.envelope import Reason
from schemas.model import Base
from schemas.training import Device, HyperParameters, LossType, MethodName
from schemas.units import divide_up
from tunery.plan.base_proofs import ProofCode, unproven
from tunery.plan.engines import EngineCode, engine_problem
from tunery.plan.knobs import ADAPTER_KNOBS, KNOBS, LAYERS_MAX, Knob, Number
from tunery.plan.methods import SMOOTHED
from tunery.plan.packing import packed, steps_of_epoch

# "auto"
CHECKPOINT_SHARE: Final = 0.02  # of the time; the rest of it is paid for training
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
LR_WHOLE: Final = 1  # where every weight is trained
LR_LORA_SHORT: Final = 15
LR_HIDDEN: Final = 2000
LR_EXPONENT: Final[Mapping[str, float]] = {"llama": 0.781, "qwen": 0.0775}
LR_EXPONENT_OTHER: Final = LR_EXPONENT["llama"]  # most other families have its architecture
LR_MIN: Final = 2e-4  # of an adapter
NO_THREADS: Final = ("threads", 0)  # of jobs from before it was kept: as their node says
SUPERVISED: Final[MethodName] = "supervised"
# 1e-5 is usual for DPO with LoRA on 8B models (TRL's 1e-6 for all weights × 10), where the rule for
# supervised training gives 2.9e-4; smaller ones, where it gives more, bear more.
# ORPO learns the preferred answer as well; its paper takes some times the rates of DPO's. TRL's
# documents train reward models with LoRA at 1e-4; a new head tolerates more than the layers.
LR_OF_PREFERENCES: Final = 20
LR_BELOW: Final[Mapping[str, int]] = {"orpo": 5, "reward": 2}
BETA: Final = 0.1
BETA_OF_METHOD: Final[Mapping[str, float]] = {"simpo": 2.0, "reinforcement": 0.04}
NEEDS_SMOOTHING: Final[LossType] = "exo_pair"
HyperRequest: TypeAlias = Mapping[str, int | float | str | Sequence[str] | Mapping[str, int] | None]
# Everything may be null or "auto".
RANGES: Final[Mapping[str, tuple[Number, Number]]] = {
    name: (knob.low, knob.high) for name, knob in KNOBS.items() if knob.kind in ("whole", "number")
}


# Why a parameter cannot be used. Names after a code are the parameters of its reason.
ParameterCode: TypeAlias = Literal[
    EngineCode,
    ProofCode,
    "unknown",  # known
    "not_a_choice",  # name, known
    "not_layers",  # name, most
    "not_names",  # name, most
    "not_a_pattern",  # name, most, low, high
    "does_not_divide",  # batch_size
    "two_learning_rates",
    "of_other_method",  # name, method, methods
    "of_an_adapter",  # name
    "not_smoothed",  # loss_type, known
    "needs_smoothing",
    "not_whole_in_range",  # name, low, high, value
    "not_in_range",  # name, low, high, value
    "multiplier_not_in_range",  # high, value
]


@dataclass(frozen=True)
class ParameterProblem:
    """A parameter of a request that cannot be used: its name, and why."""

    param: str
    reason: Reason


def problems(
    request: HyperRequest, base: Base | None, slots: int = 1
) -> tuple[ParameterProblem, ...]:
    """Return everything that is wrong with a request, in the order of its fields.

    `method` is checked earlier.

    base: base model; None: unknown. Two ranges are narrower for some base models.
    slots: number of slots of the job
    """
    named: list[ParameterProblem] = []
    method = str(request.get("method", SUPERVISED))
    for name, value in request.items():
        reason = None if name == "method" else _problem(name, value, base, method)
        if reason is None and _is_of_an_adapter(name, value, request):
            reason = _parameter_reason("of_an_adapter", name=name)
        if reason is not None:
            named.append(ParameterProblem(name, reason))
    if all(is_set(request.get(name)) for name in ("learning_rate", "learning_rate_multiplier")):
        both = _parameter_reason("two_learning_rates")
        named.append(ParameterProblem("learning_rate_multiplier", both))
    if (unsmoothed := _smoothing_problem(request)) is not None:
        named.append(unsmoothed)
    if base is not None and base.proof is not None:
        ruled_out = unproven(request, base.base_id, base.proof)
        named += [ParameterProblem(param, reason) for param, reason in ruled_out]
    if not named and (refused := engine_problem(request, base, slots)) is not None:
        named.append(ParameterProblem(refused.param, refused.reason))
    batch, parts = request.get("batch_size"), request.get("accumulation")
    divides = isinstance(batch, int) and isinstance(parts, int) and parts and batch % parts == 0
    if KNOBS["accumulation"].allows(parts) and not divides:
        uneven = _parameter_reason("does_not_divide", batch_size=repr_short(batch or "auto"))
        named.append(ParameterProblem("accumulation", uneven))
    return tuple(named)


def resolve(
    request: HyperRequest | None,
    base: Base,
    tokens: BaseTokens | None,
    seed: int,
    device: Device = "cpu",
    validation_fraction_ppm: int = 0,
) -> tuple[HyperParameters, tuple[str, ...]]:
    """Return a number for every "auto", and the names of the fields that were "auto".

    request: a request without `problems`
    tokens: null while the file is being validated; rules that depend on the data then take their
        middle values
    device: device of the node that the job will run on
    validation_fraction_ppm: share of the rows that are kept for validation
    """
    requested: dict[str, Any] = {
        name: value for name, value in (request or {}).items() if is_set(value)
    }
    method = requested.get("method", SUPERVISED)
    # Rules, in the order in which they depend on each other; a request replaces what they give.
    length = requested.get("max_length", _auto_length(base, tokens, device))
    plan = None if tokens is None else packed(tokens, length, validation_fraction_ppm)
    rows = None if plan is None else plan.packed_rows
    batch = requested.get("batch_size", _auto_batch(rows))
    steps_per_epoch = None if rows is None else steps_of_epoch(rows, batch)
    epochs = requested.get("n_epochs", _auto_epochs(steps_per_epoch, tokens))
    steps = None if steps_per_epoch is None else steps_per_epoch * epochs
    if steps is not None and requested.get("max_steps"):
        steps = min(steps, requested["max_steps"])
    rank: Any = requested.get("rank", 0 if _trains_all(requested) else KNOBS["rank"].default)
    alpha = requested.get("alpha", 2 * rank)
    rules: dict[str, Any] = {
        "n_epochs": epochs,
        "batch_size": batch,
        "accumulation": 1,
        "learning_rate": _learning_rate(requested, base, steps),
        "rank": rank,
        "alpha": alpha,
        "max_length": length,
        "threads": THREADS[device],
        # No bound where the steps between checkpoints are given: those are kept to.
        "checkpoint_share": 0 if "checkpoint_every_steps" in requested else CHECKPOINT_SHARE,
        "checkpoint_each_epoch": not _trains_all(requested),
        "packing": base.proof is None or base.proof.packs,
        "beta": BETA_OF_METHOD.get(method, BETA),
    }
    if _compares(requested) or _trains_all(requested):
        rules["dropout"] = 0
    for name, usual in (("rank_pattern", rank), ("alpha_pattern", alpha)):
        pattern = requested.get(name, {})
        requested[name] = {layer: value for layer, value in pattern.items() if value != usual}
    values = {
        knob.field: knob.recorded(requested.get(name, rules.get(name, knob.default)))
        for name, knob in KNOBS.items()
        if name != "learning_rate_multiplier" and method in (knob.methods or (method,))
    }
    values["learning_rate_ppb"] = max(1, values["learning_rate_ppb"])
    named = {*requested}
    if "learning_rate_multiplier" in requested:
        named.add("learning_rate")
    auto = ("n_epochs", "batch_size", "learning_rate", "rank", "alpha", "max_length")
    hyper = HyperParameters(seed=seed, method=method, **values)
    return hyper, tuple(name for name in auto if name not in named)


def request_of(hyper: HyperParameters) -> dict[str, Any]:
    """The request that is resolved to these hyper-parameters, regardless of the data."""
    method = {} if hyper.method == SUPERVISED else {"method": hyper.method}
    return method | {
        name: knob.shown(getattr(hyper, knob.field))
        for name, knob in KNOBS.items()
        if name != "learning_rate_multiplier"
        and (name, getattr(hyper, knob.field)) != NO_THREADS
        and hyper.method in (knob.methods or (hyper.method,))
        and (hyper.adaptation != "full" or name not in ADAPTER_KNOBS)
    }


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


def _learning_rate(requested: Mapping[str, Any], base: Base, steps: int | None) -> float:
    factor = LR_LORA_SHORT if steps is not None and steps < STEPS_MIN else LR_LORA
    if _trains_all(requested):
        factor = LR_WHOLE
    multiplier = float(requested.get("learning_rate_multiplier") or 1)
    rate = _auto_learning_rate(base, factor) * multiplier
    if _compares(requested):
        rate /= LR_BELOW.get(requested["method"], LR_OF_PREFERENCES)
    return rate


def _trains_all(requested: Mapping[str, Any]) -> bool:
    """Return whether every weight is trained, without an adapter."""
    return requested.get("adaptation") == "full"


def _is_of_an_adapter(name: str, value: Any, request: HyperRequest) -> bool:
    """Return whether a field that only adapters have is set although there is no adapter."""
    says_nothing = ADAPTER_KNOBS.get(name)
    return (
        says_nothing is not None
        and _trains_all(request)
        and is_set(value)
        and value not in says_nothing
    )


def _compares(requested: Mapping[str, Any]) -> bool:
    """Return whether the method learns from preferences between answers."""
    return bool(requested.get("method", SUPERVISED) != SUPERVISED)


def _auto_learning_rate(base: Base, factor: int) -> float:
    exponent = LR_EXPONENT.get(base.family, LR_EXPONENT_OTHER)
    rule = LR_FULL * factor * math.pow(LR_HIDDEN / max(base.hidden_size, 1), exponent)
    return max(rule, LR_MIN * min(factor, LR_LORA) / LR_LORA)


def multiplier_max(base: Base) -> float:
    """Largest multiplier with which the learning rate stays in its range, for runs of any length.

    Rounded down to two decimals.
    """
    most = RANGES["learning_rate"][1] / _auto_learning_rate(base, LR_LORA_SHORT)
    return min(RANGES["learning_rate_multiplier"][1], math.floor(100 * most) / 100)


def _parameter_reason(code: ParameterCode, **params: str | int) -> Reason:
    return Reason(code=code, params=params)


def _problem(name: str, value: Any, base: Base | None, method: str) -> Reason | None:
    knob = KNOBS.get(name)
    if knob is None:
        return _parameter_reason("unknown", known=", ".join(KNOBS))
    if name == "train_on_prompts" and value is True and method != SUPERVISED:
        return _parameter_reason("of_other_method", name=name, method=method, methods=SUPERVISED)
    if knob.methods and method not in knob.methods and is_set(value):
        methods = ", ".join(knob.methods)
        return _parameter_reason("of_other_method", name=name, method=method, methods=methods)
    high = knob.high
    if name == "max_length" and base is not None:
        high = min(high, base.context_length)
    if name == "learning_rate_multiplier" and base is not None:
        high = multiplier_max(base)
    if name == "learning_rate_multiplier" and is_set(value):
        if replace(knob, high=high).allows(value):
            return None
        return _parameter_reason("multiplier_not_in_range", high=str(high), value=repr_short(value))
    return value_problem(name, replace(knob, high=high), value)


def value_problem(name: str, knob: Knob, value: Any) -> Reason | None:
    """Return why the knob does not allow a value; None: it does, and always "auto" and null."""
    if not is_set(value) or knob.allows(value):
        return None
    bounds = {"low": str(knob.low), "high": str(knob.high)}
    match knob.kind:
        case "choice":
            known = ", ".join(knob.choices)
            return _parameter_reason("not_a_choice", name=name, known=known)
        case "flag":
            return _parameter_reason("not_a_choice", name=name, known="true, false")
        case "layers":
            return _parameter_reason("not_layers", name=name, most=LAYERS_MAX)
        case "names":
            return _parameter_reason("not_names", name=name, most=LAYERS_MAX)
        case "pattern":
            return _parameter_reason("not_a_pattern", name=name, most=LAYERS_MAX, **bounds)
        case "whole" | "number":
            code: ParameterCode = "not_whole_in_range" if knob.kind == "whole" else "not_in_range"
            return _parameter_reason(code, name=name, value=repr_short(value), **bounds)


def is_set(value: Any) -> bool:
    return value is not None and value != "auto"


def _smoothing_problem(request: Mapping[str, Any]) -> ParameterProblem | None:
    """Return what is wrong with `label_smoothing`: a loss ignores it, or requires it."""
    loss, share = request.get("loss_type"), request.get("label_smoothing")
    if loss == NEEDS_SMOOTHING and not (is_set(share) and share):
        return ParameterProblem("loss_type", _parameter_reason("needs_smoothing"))
    if loss in KNOBS["loss_type"].choices and loss not in SMOOTHED and is_set(share) and share:
        reason = _parameter_reason("not_smoothed", loss_type=str(loss), known=", ".join(SMOOTHED))
        return ParameterProblem("label_smoothing", reason)
    return None
