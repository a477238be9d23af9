"""Start of a training from a version or a checkpoint of the tenant instead of a base model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from schemas.dataset import ChatFormat
from schemas.model import Base
from schemas.training import (
    ADAPTER_FILES,
    TRAINED_FILES,
    WHOLE_FILES,
    AdapterStart,
    BlobFile,
    HyperParameters,
)
from services.gateway.jobs.domain.requested import RequestedSettings, RequestProblem
from tunery.plan import hyperparameters
from tunery.plan.methods import REWARD

# What an adapter is made of: fields of `HyperParameters` and their names in requests alike.
KEPT: Final = (
    *("rank", "alpha", "target_modules", "modules_to_save", "rank_pattern", "alpha_pattern"),
    *("rslora", "dora"),
)
WEIGHTS: Final = (ADAPTER_FILES[0], WHOLE_FILES[0])


@dataclass(frozen=True)
class KnownStart:
    """An adapter or a whole model that a training may begin with."""

    start: AdapterStart
    # base, hyper: base model and settings of the job that trained it
    base: Base
    hyper: HyperParameters
    quarantined: bool = False  # the gate blocked it
    chat: ChatFormat | None = None  # its own template and end tokens; None: its base model's


def adapter_start(name: str, files: tuple[BlobFile, ...]) -> AdapterStart:
    """The start under this name; files: those of a version or of a checkpoint."""
    adapter = tuple(file for file in files if file.name in TRAINED_FILES)
    (sha256,) = (file.sha256 for file in adapter if file.name in WEIGHTS)
    return AdapterStart(model_id=name, sha256=sha256, files=adapter)


def start_problems(known: KnownStart, settings: RequestedSettings) -> list[RequestProblem]:
    """Why a training cannot begin with an adapter, or not with these settings, which are valid."""
    name = known.start.model_id
    if known.quarantined:
        text = (
            f"the gate blocked {name!r}, so nothing is trained on from it; begin with "
            f"{known.base.base_id!r}, or with one of its job's checkpoints"
        )
        return [RequestProblem("model", text)]
    if (known.hyper.method == REWARD) != (settings.method == REWARD):
        has, needs = ("a", "no") if known.hyper.method == REWARD else ("no", "a")
        text = (
            f"{name!r} has {has} head for rewards, and the method {settings.method} needs {needs} "
            f"such head; begin with {known.base.base_id!r}"
        )
        return [RequestProblem("model", text)]
    asked_for = settings.hyper.get("adaptation") or "auto"
    is_full = known.hyper.adaptation == "full"
    if asked_for != "auto" and is_full != (asked_for == "full"):
        has = "weights of its own" if is_full else "an adapter"
        text = (
            f"{name!r} has {has}, and a training that begins with it trains those; leave "
            f"adaptation out, or begin with {known.base.base_id!r}"
        )
        return [RequestProblem(settings.paths["adaptation"], text)]
    named = {n: settings.hyper[n] for n in KEPT if settings.hyper.get(n) not in (None, "auto")}
    usual = {"rank": known.hyper.rank, "alpha": known.hyper.alpha}
    asked, _ = hyperparameters.resolve({**usual, **named}, known.base, None, 0)
    return [
        RequestProblem(
            settings.paths[field],
            f"{name!r} has {_shown(getattr(known.hyper, field))}, and a training that begins with "
            f"it keeps that; leave {field} out, or begin with {known.base.base_id!r}",
        )
        for field in named
        if getattr(asked, field) != getattr(known.hyper, field)
    ]


def hyper_with_start(hyper: Mapping[str, Any], known: KnownStart | None) -> Mapping[str, Any]:
    """The hyper-parameters of a request: with a whole model all weights are trained, unasked."""
    if known is None or known.hyper.adaptation != "full":
        return hyper
    return {**hyper, "adaptation": "full"}


def with_start(hyper: HyperParameters, known: KnownStart) -> HyperParameters:
    """The settings of a training that begins with an adapter: what that is made of is kept."""
    return replace(hyper, **{field: getattr(known.hyper, field) for field in KEPT})


def _shown(value: object) -> str:
    match value:
        case ():
            return "the default"
        case tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)
