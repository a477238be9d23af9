"""The plain routes' bodies in OpenAI's words, and errors back in theirs."""

from typing import Any

import pytest

from services.gateway.jobs.domain.bodies import FineTuningRequest, SimpleJobRequest
from services.gateway.jobs.domain.plain_bodies import (
    OF_FINE_TUNING,
    OF_SIMPLE,
    from_fine_tuning,
    from_simple,
    with_plain_names,
)
from services.gateway.web.domain.errors import ApiError


def simple(dataset_uri: str, **fields: Any) -> SimpleJobRequest:
    return SimpleJobRequest(base_model="m", dataset_uri=dataset_uri, **fields)


@pytest.mark.parametrize("prefix", ["", "tunery://files/"])
@pytest.mark.parametrize("file_id", ["file-1", "faq@2"])
def test_a_dataset_is_an_uploaded_file_or_a_named_version(prefix: str, file_id: str) -> None:
    assert from_simple(simple(prefix + file_id)).training_file == file_id


@pytest.mark.parametrize("uri", ["s3://bucket/rows.jsonl", "faq", "https://example.com/file-1"])
def test_a_uri_of_another_store_is_refused_with_a_hint_to_upload(uri: str) -> None:
    with pytest.raises(ApiError) as refusal:
        from_simple(simple(uri))
    assert (refusal.value.status, refusal.value.param) == (400, "dataset_uri")
    assert "POST /v1/files" in refusal.value.message


def test_short_names_of_parameters_become_openais() -> None:
    body = from_simple(simple("file-1", params={"lr": 1e-4, "epochs": 3, "rank": 8}, seed=7))
    assert body.hyperparameters == {"learning_rate": 1e-4, "n_epochs": 3, "rank": 8}
    assert (body.model, body.seed, body.suffix) == ("m", 7, None)


def test_a_fine_tuning_request_is_the_same_job_with_its_own_eval() -> None:
    body = from_fine_tuning(
        FineTuningRequest(
            base_model="m",
            training_file="file-1",
            validation_file="file-2",
            method="sft",
            eval_config={"drop_max": 0.02},
        )
    )
    assert (body.validation_file, body.eval) == ("file-2", {"drop_max": 0.02})
    assert body.method is None


def test_an_unsupported_method_is_refused() -> None:
    request = FineTuningRequest(base_model="m", training_file="file-1", method="dpo")
    with pytest.raises(ApiError) as refusal:
        from_fine_tuning(request)
    assert (refusal.value.param, refusal.value.code) == ("method", "unsupported")
    assert "supported: lora, sft" in refusal.value.message


@pytest.mark.parametrize(("method", "other"), [("qlora", "lora"), ("lora", "qlora")])
def test_first_hour_a_method_and_a_setting_that_contradict_each_other_are_refused(
    method: str, other: str
) -> None:
    """`qlora` with `adaptation: lora` trained the latter without a word."""
    fields: dict[str, Any] = {"base_model": "m", "training_file": "file-1", "method": method}
    with pytest.raises(ApiError) as refusal:
        from_fine_tuning(FineTuningRequest(**fields, hyperparameters={"adaptation": other}))
    assert refusal.value.param == "hyperparameters.adaptation"
    assert f"method {method!r} means adaptation {method!r}" in refusal.value.message
    same = FineTuningRequest(**fields, hyperparameters={"adaptation": method})
    assert from_fine_tuning(same).hyperparameters == {"adaptation": method}


def test_errors_name_the_fields_of_the_body_that_was_sent() -> None:
    error = ApiError(400, "invalid", "hyperparameters.rank: must be less", "hyperparameters.rank")
    renamed = with_plain_names(error, OF_SIMPLE)
    assert (renamed.message, renamed.param) == ("params.rank: must be less", "params.rank")
    unchanged = with_plain_names(error, OF_FINE_TUNING)
    assert (unchanged.message, unchanged.param) == (error.message, error.param)


def test_only_field_names_are_renamed_in_errors() -> None:
    error = ApiError(404, "not_found", "The model m does not exist", None)
    assert with_plain_names(error, OF_SIMPLE).message == error.message
    assert (
        with_plain_names(ApiError(404, "not_found", "", "model"), OF_SIMPLE).param == "base_model"
    )
