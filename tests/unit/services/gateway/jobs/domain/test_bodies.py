"""Validation of requests about jobs."""

from typing import Any

import pytest
from pydantic import ValidationError

from services.gateway.jobs.domain.bodies import (
    SEED_MAX,
    BudgetBody,
    JobRequest,
    PreviewRequest,
    SimpleJobRequest,
)


def request(**fields: Any) -> JobRequest:
    return JobRequest.model_validate({"model": "m", "training_file": "file-1", **fields})


def test_a_model_and_a_file_are_enough() -> None:
    assert request().model_dump(exclude_none=True) == {
        "model": "m",
        "training_file": "file-1",
        "dry_run": False,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"n_epoch": 3},
        {"model": ""},
        {"seed": -1},
        {"seed": SEED_MAX + 1},
        {"seed": True},
        {"seed": "7"},
        {"suffix": ""},
        {"suffix": "s" * 65},
        {"dry_run": "true"},
        {"integrations": [{}] * 6},
        {"metadata": {f"key-{number}": "v" for number in range(17)}},
        {"metadata": {"k" * 65: "v"}},
        {"metadata": {"key": "v" * 513}},
        {"metadata": {"key": 1}},
        {"method": {"type": "supervised", "supervised": {"n_epochs": 3}}},
    ],
)
def test_what_is_unknown_or_out_of_bounds_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        request(**fields)


def test_the_largest_values_are_taken() -> None:
    metadata = {f"{number:064}": "v" * 512 for number in range(16)}
    body = request(seed=SEED_MAX, suffix="s" * 64, metadata=metadata)
    assert (body.seed, body.suffix, body.metadata) == (SEED_MAX, "s" * 64, metadata)


@pytest.mark.parametrize("hours", [0, -1, 1e7, float("inf"), float("nan")])
def test_a_budget_is_a_finite_positive_number(hours: float) -> None:
    with pytest.raises(ValidationError):
        BudgetBody(max_gpu_hours=hours)


def test_a_preview_shows_up_to_twenty_rows() -> None:
    body = {"model": "m", "training_file": "file-1"}
    assert PreviewRequest.model_validate(body).rows == 3
    assert PreviewRequest.model_validate({**body, "rows": 20}).rows == 20
    for rows in (0, 21):
        with pytest.raises(ValidationError):
            PreviewRequest.model_validate({**body, "rows": rows})


def test_the_extras_of_a_plain_job_are_those_that_were_sent() -> None:
    body = SimpleJobRequest(base_model="m", dataset_uri="file-1", seed=7, suffix="mine")
    assert body.extras() == {"seed": 7, "suffix": "mine"}
