"""Configurations that a body of a sweep asks for."""

from typing import Any

import pytest

from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.sweep_bodies import SweepRequest, configurations, rungs_of, with_values
from services.gateway.web.domain.errors import ApiError

JOB = {"model": "m", "training_file": "file-1"}
RATES = {"learning_rate": {"min": 1e-5, "max": 1e-3, "scale": "log"}}


def body(**changes: Any) -> SweepRequest:
    return SweepRequest.model_validate({"job": JOB, "parameters": {"lora.rank": [4, 8]}, **changes})


def test_a_grid_names_hyper_parameters_with_or_without_their_group() -> None:
    parameters = {"lora.rank": [4, 8, 4], "scheduler": ["cosine"]}
    assert configurations(body(parameters=parameters)) == [
        {"rank": 4, "scheduler": "cosine"},
        {"rank": 8, "scheduler": "cosine"},
    ]


def test_random_draws_are_seeded_and_each_is_there_once() -> None:
    drawn = body(method="random", parameters={**RATES, "rank": [4]}, trials=3)
    assert configurations(drawn) == configurations(drawn)
    assert len(configurations(drawn)) == 3
    assert len(configurations(body(method="random", trials=9))) <= 2


def test_a_halving_has_rungs() -> None:
    halving = {"method": "halving", "trials": 9, "min_steps": 10, "max_steps": 90}
    assert rungs_of(body(**halving)) == (10, 30, 90)
    assert rungs_of(body(**halving, factor=2)) == (10, 20, 40, 80, 90)
    assert rungs_of(body()) == ()


@pytest.mark.parametrize(
    ("changes", "param", "words"),
    [
        ({"parameters": {"lora.rnk": [1]}}, "parameters.lora.rnk", "is not known"),
        ({"parameters": {"rnk": [1]}}, "parameters.rnk", "did you mean rank?"),
        ({"parameters": RATES}, "parameters.learning_rate", "a grid takes lists"),
        (
            {"parameters": {"rank": {"min": 8, "max": 4}}, "method": "random", "trials": 2},
            "parameters.rank",
            "min must be below max",
        ),
        (
            {"parameters": {"dropout": {"min": 0, "max": 0.5, "scale": "log"}}, "trials": 2},
            "parameters.dropout",
            "above 0 on a log scale",
        ),
        (
            {"parameters": {"rank": [*range(1, 20)], "n_epochs": [1, 2, 3, 4]}},
            "parameters",
            "there are 76 combinations",
        ),
        ({"method": "random"}, "trials", "how many configurations are drawn"),
        ({"min_steps": 3}, "min_steps", "belongs to the method halving"),
        ({"method": "halving", "trials": 2}, "min_steps", "the first below the second"),
        (
            {"method": "halving", "trials": 2, "parameters": {"max_steps": [3]}},
            "parameters.max_steps",
            "sets the steps of its rungs",
        ),
    ],
)
def test_what_cannot_be_tried_is_refused(changes: dict[str, Any], param: str, words: str) -> None:
    request = body(**changes)
    with pytest.raises(ApiError) as refused:
        _ = (rungs_of(request), configurations(request))
    assert refused.value.param == param
    assert words in refused.value.message


def test_values_replace_those_of_the_job_in_each_group() -> None:
    job = JobRequest.model_validate(
        {
            **JOB,
            "lora": {"rank": 2, "alpha": 4},
            "hyperparameters": {"n_epochs": 3},
            "method": {"type": "supervised", "supervised": {"hyperparameters": {"batch_size": 1}}},
        }
    )
    changed = with_values(job, {"rank": 8, "n_epochs": 1, "batch_size": 2})
    assert changed.training == {"rank": 8, "n_epochs": 1, "batch_size": 2}
    assert (changed.lora, changed.hyperparameters) == ({"alpha": 4}, {})
    assert changed.method is not None
    assert changed.method.supervised is not None
    assert changed.method.supervised.hyperparameters == {}
