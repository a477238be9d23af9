"""Hyper-parameters of a request: their ranges, and the rules behind "auto"."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import repr as repr_short
from typing import Any, Final, Literal, TypeAlias, cast

from schemas.dataset import BaseTokens
from schemas.envelope import Reason
from schemas.model import Base
from schemas.training import Device, HyperParameters, LossType, MethodName
from schemas.units import PPB, PPM, divide_up
from tunery.plan.fitting import PLANNED, unsharded, unstreamed
from tunery.plan.knobs import ADAPTER_KNOBS, KNOBS, LAYERS_MAX, Number
from tunery.plan.methods import SMOOTHED
from tunery.plan.packing import packed, steps_of_epoch
from tunery.work.spec import ALL_LINEAR

# "auto"
CHECKPOINT_SHARE_PPM: Final = 20_000  # of the time; the rest of it is paid for training
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
# documents train reward models with LoRA at 1e-4; a new head bears more than the layers do.
LR_OF_PREFERENCES: Final = 20
LR_BELOW: Final[Mapping[str, int]] = {"orpo": 5, "reward": 2}
BETA_PPM: Final = 100_000
BETA_OF_METHOD_PPM: Final[Mapping[str, int]] = {"simpo": 2_000_000, "reinforcement": 40_000}
NEEDS_SMOOTHING: Final[LossType] = "exo_pair"
WORDS: Final = ("precision", "adaptation", "scheduler")
HyperRequest: TypeAlias = Mapping[str, int | float | str | Sequence[str] | Mapping[str, int] | None]
# Everything may be null or "auto".
RANGES: Final[Mapping[str, tuple[Number, Number]]] = {
    name: (knob.low, knob.high) for name, knob in KNOBS.items() if knob.kind in ("whole", "number")
}


# Why a parameter cannot be used. Names after a code are the parameters of its reason.
ParameterCode: TypeAlias = Literal[
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
    "not_streamed",  # what
    "not_sharded",  # what
    "not_whole_in_range",  # name, low, high, value
    "not_in_range",  # name, low, high, value
    "multiplier_not_in_range",  # high, value
]


WHERE_MISSING: Final[tuple[tuple[str, ParameterCode, Callable[..., str | None]], ...]] = (
    ("offload", "not_streamed", unstreamed),
    ("shard_weights", "not_sharded", unsharded),
)


@dataclass(frozen=True)
class ParameterProblem:
    """A parameter of a request that cannot be used: its name, and why."""

    param: str
    reason: Reason


def problems(request: HyperRequest, base: Base | None) -> tuple[ParameterProblem, ...]:
    """Everything that is wrong with a request, in the order of its fields.

    Its `method` was checked before.

    base: None where it is not known: two ranges are narrower for some base models.
    """
    named: list[ParameterProblem] = []
    method = str(request.get("method", SUPERVISED))
    for name, value in request.items():
        reason = None if name == "method" else _problem(name, value, base, method)
        if reason is None and _is_of_an_adapter(name, value, request):
            reason = _parameter_reason("of_an_adapter", name=name)
        if reason is not None:
            named.append(ParameterProblem(name, reason))
    if all(_is_set(request.get(name)) for name in ("learning_rate", "learning_rate_multiplier")):
        both = _parameter_reason("two_learning_rates")
        named.append(ParameterProblem("learning_rate_multiplier", both))
    if (unsmoothed := _smoothing_problem(request)) is not None:
        named.append(unsmoothed)
    if not named:
        named += _passing_problems(request, base)
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
    """Numbers for every "auto", and the names of those that were "auto".

    request: without `problems`
    tokens: null while the file is being validated; rules that depend on the data then take their
        middle values
    device: of the node the job will run on
    validation_fraction_ppm: share of the rows that are kept for validation
    """
    requested: dict[str, Any] = {
        name: value for name, value in (request or {}).items() if _is_set(value)
    }
    length = _whole(requested, "max_length", _auto_length(base, tokens, device))
    plan = None if tokens is None else packed(tokens, length, validation_fraction_ppm)
    rows = None if plan is None else plan.packed_rows
    batch = _whole(requested, "batch_size", _auto_batch(rows))
    steps_per_epoch = None if rows is None else steps_of_epoch(rows, batch)
    epochs = _whole(requested, "n_epochs", _auto_epochs(steps_per_epoch, tokens))
    max_steps = _whole(requested, "max_steps")
    steps = None if steps_per_epoch is None else steps_per_epoch * epochs
    if steps is not None and max_steps:
        steps = min(steps, max_steps)
    rank = _whole(requested, "rank", 0 if _trains_all(requested) else None)
    alpha = _whole(requested, "alpha", 2 * rank)
    layers = requested.get("target_modules", ALL_LINEAR)
    hyper = HyperParameters(
        n_epochs=epochs,
        batch_size=batch,
        learning_rate_ppb=_learning_rate_ppb(requested, base, steps),
        rank=rank,
        alpha=alpha,
        dropout_ppm=_ppm(requested, "dropout", _auto_dropout_ppm(requested)),
        warmup_ppm=_ppm(requested, "warmup_ratio"),
        weight_decay_ppm=_ppm(requested, "weight_decay"),
        max_length=length,
        seed=seed,
        checkpoint_every_steps=_whole(requested, "checkpoint_every_steps"),
        checkpoint_every_ms=_whole(requested, "checkpoint_every_ms"),
        keep_checkpoints=_whole(requested, "keep_checkpoints"),
        accumulation=_whole(requested, "accumulation", 1),
        threads=_whole(requested, "threads", THREADS[device]),
        checkpoint_share_ppm=_ppm(requested, "checkpoint_share", _auto_share_ppm(requested)),
        max_steps=max_steps,
        grad_norm_max_ppm=_ppm(requested, "max_grad_norm"),
        target_modules=() if isinstance(layers, str) else tuple(sorted(set(layers))),
        lora_plus_ppm=_ppm(requested, "lora_plus_ratio"),
        neftune_ppm=_ppm(requested, "neftune_alpha"),
        eval_every_steps=_whole(requested, "eval_every_steps"),
        sample_every_steps=_whole(requested, "sample_every_steps"),
        early_stopping_patience=_whole(requested, "early_stopping_patience"),
        **_flags(requested),
        **{name: cast("Any", _word(requested, name)) for name in WORDS},
        modules_to_save=tuple(sorted(set(requested.get("modules_to_save", ())))),
        rank_pattern=_pattern(requested, "rank_pattern", rank),
        alpha_pattern=_pattern(requested, "alpha_pattern", alpha),
        method=requested.get("method", SUPERVISED),
        **_preference(requested),
    )
    auto = (n for n in ("n_epochs", "batch_size", "learning_rate", "rank", "alpha", "max_length"))
    named = set(requested)
    if "learning_rate_multiplier" in requested:
        named.add("learning_rate")
    return hyper, tuple(name for name in auto if name not in named)


def request_of(hyper: HyperParameters) -> dict[str, Any]:
    """The request that is resolved to these hyper-parameters, whatever the data."""
    method = {} if hyper.method == SUPERVISED else {"method": hyper.method}
    return method | {
        name: _requested(name, getattr(hyper, knob.field))
        for name, knob in KNOBS.items()
        if name != "learning_rate_multiplier"
        and (name, getattr(hyper, knob.field)) != NO_THREADS
        and hyper.method in (knob.methods or (hyper.method,))
        and (hyper.adaptation != "full" or name not in ADAPTER_KNOBS)
    }


def _requested(name: str, value: Any) -> Any:
    knob = KNOBS[name]
    match knob.kind:
        case "whole" | "choice" | "flag":
            return value
        case "layers":
            return list(value) or ALL_LINEAR
        case "names":
            return list(value)
        case "pattern":
            return dict(value)
        case "number":
            return value / (PPB if knob.field.endswith("_ppb") else PPM)


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


def _auto_dropout_ppm(requested: Mapping[str, Any]) -> int | None:
    """None: the default of the knob."""
    return 0 if _compares(requested) or _trains_all(requested) else None


def _auto_share_ppm(requested: HyperRequest) -> int:
    """No bound where the steps between checkpoints were asked for: they are kept to."""
    return 0 if "checkpoint_every_steps" in requested else CHECKPOINT_SHARE_PPM


def _learning_rate_ppb(requested: Mapping[str, Any], base: Base, steps: int | None) -> int:
    if "learning_rate" in requested:
        return max(1, round(float(requested["learning_rate"] or 0) * PPB))
    factor = LR_LORA_SHORT if steps is not None and steps < STEPS_MIN else LR_LORA
    if _trains_all(requested):
        factor = LR_WHOLE
    multiplier = float(requested.get("learning_rate_multiplier") or 1)
    rate = _auto_learning_rate(base, factor) * multiplier * PPB
    if _compares(requested):
        rate /= LR_BELOW.get(requested["method"], LR_OF_PREFERENCES)
    return max(1, round(rate))


def _trains_all(requested: Mapping[str, Any]) -> bool:
    """Whether every weight is trained: there is no adapter then."""
    return requested.get("adaptation") == "full"


def _is_of_an_adapter(name: str, value: Any, request: HyperRequest) -> bool:
    """Whether it is asked for what only an adapter has, where there is none."""
    says_nothing = ADAPTER_KNOBS.get(name)
    return (
        says_nothing is not None
        and _trains_all(request)
        and _is_set(value)
        and value not in says_nothing
    )


def _compares(requested: Mapping[str, Any]) -> bool:
    """Whether the method learns which answers are preferred."""
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
    if knob.methods and method not in knob.methods and _is_set(value):
        methods = ", ".join(knob.methods)
        return _parameter_reason("of_other_method", name=name, method=method, methods=methods)
    high = knob.high
    if name == "max_length" and base is not None:
        high = min(high, base.context_length)
    if name == "learning_rate_multiplier" and base is not None:
        high = multiplier_max(base)
    if not _is_set(value) or replace(knob, high=high).allows(value):
        return None
    shown = repr_short(value)
    if name == "learning_rate_multiplier":
        return _parameter_reason("multiplier_not_in_range", high=str(high), value=shown)
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
            return _parameter_reason(
                "not_a_pattern", name=name, most=LAYERS_MAX, low=str(knob.low), high=str(high)
            )
        case "whole" | "number":
            code: ParameterCode = "not_whole_in_range" if knob.kind == "whole" else "not_in_range"
            return _parameter_reason(
                code, name=name, low=str(knob.low), high=str(high), value=shown
            )


def _is_set(value: Any) -> bool:
    return value is not None and value != "auto"


def _whole(requested: Mapping[str, Any], name: str, otherwise: int | None = None) -> int:
    return int(_value(requested, name, otherwise))


def _ppm(requested: Mapping[str, Any], name: str, otherwise_ppm: int | None = None) -> int:
    if otherwise_ppm is not None and name not in requested:
        return otherwise_ppm
    return round(float(_value(requested, name, None)) * PPM)


def _word(requested: Mapping[str, Any], name: str) -> str:
    return str(requested.get(name, KNOBS[name].default))


def _flags(requested: Mapping[str, Any]) -> dict[str, Any]:
    """All that are true or false, by their names."""
    names = (name for name, knob in KNOBS.items() if knob.kind == "flag")
    flags = {name: requested.get(name, KNOBS[name].default == "true") for name in names}
    return flags | {"recompute": any(flags[name] for name in PLANNED)}


def _preference(requested: Mapping[str, Any]) -> dict[str, Any]:
    """Of a method that compares answers: its weights, its loss and its answers."""
    method = requested.get("method", SUPERVISED)
    defaults_ppm = {"beta": BETA_OF_METHOD_PPM.get(method, BETA_PPM)}
    return {
        knob.field: _word(requested, name)
        if knob.kind == "choice"
        else _whole(requested, name)
        if knob.kind == "whole"
        else _ppm(requested, name, defaults_ppm.get(name))
        for name, knob in KNOBS.items()
        if method in knob.methods
    }


def _smoothing_problem(request: Mapping[str, Any]) -> ParameterProblem | None:
    """Of the share of wrong pairs with a loss that does not know it, or cannot be without it."""
    loss, share = request.get("loss_type"), request.get("label_smoothing")
    if loss == NEEDS_SMOOTHING and not (_is_set(share) and share):
        return ParameterProblem("loss_type", _parameter_reason("needs_smoothing"))
    if loss in KNOBS["loss_type"].choices and loss not in SMOOTHED and _is_set(share) and share:
        reason = _parameter_reason("not_smoothed", loss_type=str(loss), known=", ".join(SMOOTHED))
        return ParameterProblem("label_smoothing", reason)
    return None


def _passing_problems(request: Mapping[str, Any], base: Base | None) -> list[ParameterProblem]:
    """Of layers that are to be streamed or sharded where that is not built."""
    family = None if base is None else base.family
    refused: list[ParameterProblem] = []
    for name, code, missing in WHERE_MISSING:
        what = missing(family, request) if request.get(name) is True else None
        if what is not None:
            refused.append(ParameterProblem(name, _parameter_reason(code, what=what)))
    return refused


def _pattern(requested: Mapping[str, Any], name: str, usual: int) -> tuple[tuple[str, int], ...]:
    """Values that differ from the usual one, by the names of their layers."""
    values: Mapping[str, int] = requested.get(name, {})
    return tuple((layer, values[layer]) for layer in sorted(values) if values[layer] != usual)


def _value(requested: Mapping[str, Any], name: str, otherwise: int | None) -> Any:
    """What was asked for; else the result of a rule; else the default."""
    if name in requested:
        return requested[name] or 0
    return KNOBS[name].default if otherwise is None else otherwise
