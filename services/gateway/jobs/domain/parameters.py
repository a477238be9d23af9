"""Hyper-parameters in answers: their fields are made from the table of knobs."""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from pydantic import Field, create_model

from schemas.training import HyperParameters, MethodName
from services.gateway.web.domain.responses import Response, with_fields
from tunery.plan.hyperparameters import SUPERVISED
from tunery.plan.knobs import KNOBS, OF_THE_BASE, Kind, Knob
from tunery.plan.methods import ROWS_OF_METHOD

Auto = Literal["auto"]
#: OpenAI's, which may be "auto" in its answers
OPENAIS: Final = ("batch_size", "learning_rate_multiplier", "n_epochs")
TYPES: Final[Mapping[Kind, Any]] = {
    "whole": int,
    "number": float,
    "choice": str,
    "flag": bool,
    "layers": str | list[str],
    "names": list[str],
    "pattern": dict[str, int],
}


def _knobs_of(method: MethodName | None) -> tuple[str, ...]:
    """Names of the knobs that only some methods have, or of those that all have, but OpenAI's."""
    return tuple(
        name
        for name, knob in KNOBS.items()
        if name not in OPENAIS and (method in knob.methods if method else not knob.methods)
    )


def _fields(method: MethodName | None) -> dict[str, Any]:
    return {
        name: (_type_of(KNOBS[name]), Field(description=KNOBS[name].source))
        for name in _knobs_of(method)
    }


def _type_of(knob: Knob) -> Any:
    kind = TYPES[knob.kind]
    return kind | Auto if knob.field == OF_THE_BASE else kind


@with_fields(**_fields(None))
class TrainingParametersResponse(Response):
    """Hyper-parameters that OpenAI's object does not have."""


class HyperparametersResponse(TrainingParametersResponse):
    """Hyper-parameters: "auto" as requested until the job runs, then resolved numbers.

    learning_rate_multiplier: the learning rate divided by the default for this base and data.
    """

    batch_size: int | Auto
    learning_rate_multiplier: float | Auto
    n_epochs: int | Auto


def _of_method(method: MethodName) -> type[Response]:
    name = method.capitalize()
    own = create_model(
        f"{name}HyperparametersResponse", __base__=HyperparametersResponse, **_fields(method)
    )
    grader = {} if method != "reinforcement" else {"grader": (dict[str, Any] | None, None)}
    fields: dict[str, Any] = {"hyperparameters": (own, ...), **grader}
    return create_model(f"{name}Response", __base__=Response, **fields)


METHODS: Final = {method: _of_method(method) for method in ROWS_OF_METHOD}


@with_fields(**{method: (model | None, None) for method, model in METHODS.items()})
class MethodResponse(Response):
    """The method, and its own settings under its name. `grader`: null if its tenant was erased."""

    type: MethodName = SUPERVISED


def method_response(
    hyper: HyperParameters, shown: HyperparametersResponse, grader: dict[str, Any] | None
) -> MethodResponse:
    """The method of a job with its hyper-parameters."""
    of_method = METHODS[hyper.method]
    own = of_method.model_fields["hyperparameters"].annotation
    values = {**shown.model_dump(), **_shown(hyper, hyper.method)}
    fields: dict[str, Any] = {"hyperparameters": cast("type[Response]", own)(**values)}
    if hyper.method == "reinforcement":
        fields["grader"] = grader
    named: dict[str, Any] = {hyper.method: of_method(**fields)}
    return MethodResponse(type=hyper.method, **named)


def training_parameters(hyper: HyperParameters) -> dict[str, Any]:
    """Fields of `TrainingParametersResponse`."""
    return _shown(hyper, None)


def _shown(hyper: HyperParameters, method: MethodName | None) -> dict[str, Any]:
    return {
        name: KNOBS[name].shown(getattr(hyper, KNOBS[name].field)) for name in _knobs_of(method)
    }
