"""Answers have every hyper-parameter of the table of knobs, and of a method those that it has."""

from typing import get_args

import pytest
from msgspec.structs import replace

from schemas.training import MethodName
from services.gateway.jobs.domain.parameters import (
    OPENAIS,
    HyperparametersResponse,
    method_response,
    training_parameters,
)
from simulator.control_plane.samples import HYPER
from tunery.plan.hyperparameters import request_of
from tunery.plan.knobs import KNOBS

GRADER = {"type": "string_check"}


@pytest.mark.parametrize("method", get_args(MethodName))
def test_a_method_has_its_own_knobs_and_those_of_all(method: MethodName) -> None:
    hyper = replace(HYPER, method=method, threads=2)
    shown = HyperparametersResponse(
        n_epochs="auto", batch_size=4, learning_rate_multiplier=1.0, **training_parameters(hyper)
    )
    answer = method_response(hyper, shown, GRADER).model_dump(exclude_none=True)
    assert answer.pop("type") == method
    assert [*answer] == [method]
    assert answer[method].get("grader") == (GRADER if method == "reinforcement" else None)
    parameters = answer[method]["hyperparameters"]
    own = {name for name, knob in KNOBS.items() if not knob.methods or method in knob.methods}
    assert {*parameters} == own
    asked = request_of(hyper)
    assert {name: parameters[name] for name in own - {*OPENAIS}} == {
        name: asked[name] for name in own - {*OPENAIS}
    }
    assert parameters["n_epochs"] == "auto"


def test_fields_say_where_their_default_comes_from() -> None:
    schema = HyperparametersResponse.model_json_schema()
    assert schema["properties"]["dropout"]["description"] == KNOBS["dropout"].source
