"""Validation of requests about files and uploads."""

from typing import Any

import pytest
from pydantic import ValidationError

from services.gateway.files.domain.bodies import (
    EXPIRES_S_MAX,
    EXPIRES_S_MIN,
    CompleteRequest,
    ExpiresAfter,
    UploadRequest,
    check_purpose,
    wrong_purpose,
)
from services.gateway.web.domain.errors import ApiError

UPLOAD = {"bytes": 1, "filename": "a", "mime_type": "text/plain", "purpose": "fine-tune"}


@pytest.mark.parametrize("seconds", [EXPIRES_S_MIN, EXPIRES_S_MAX])
def test_a_file_expires_within_an_hour_to_thirty_days(seconds: int) -> None:
    assert ExpiresAfter(anchor="created_at", seconds=seconds).ms == 1_000 * seconds


@pytest.mark.parametrize("seconds", [EXPIRES_S_MIN - 1, EXPIRES_S_MAX + 1, "3600", True])
def test_another_time_of_expiry_is_refused(seconds: Any) -> None:
    with pytest.raises(ValidationError):
        ExpiresAfter.model_validate({"anchor": "created_at", "seconds": seconds})


@pytest.mark.parametrize(
    "fields",
    [
        {"bytes": 0},
        {"bytes": 2**53},
        {"filename": ""},
        {"filename": "a" * 257},
        {"dataset": "faq@2"},
        {"dataset": "-faq"},
        {"rows": 1},
    ],
)
def test_an_upload_out_of_bounds_is_refused(fields: dict[str, Any]) -> None:
    assert UploadRequest.model_validate(UPLOAD).dataset is None
    with pytest.raises(ValidationError):
        UploadRequest.model_validate({**UPLOAD, **fields})


@pytest.mark.parametrize(
    "fields",
    [{"part_ids": []}, {"part_ids": ["p"] * 2_001}, {"part_ids": ["p"], "md5": "0" * 31}],
)
def test_an_upload_is_completed_with_parts_and_a_whole_hash(fields: dict[str, Any]) -> None:
    assert CompleteRequest(part_ids=["p"], md5="0aF9" * 8).md5 == "0aF9" * 8
    with pytest.raises(ValidationError):
        CompleteRequest.model_validate(fields)


def test_a_file_of_another_purpose_is_no_training_file() -> None:
    check_purpose("file-1", "fine-tune", "training_file")
    with pytest.raises(ApiError) as refusal:
        check_purpose("file-1", "fine-tune-results", "validation_file")
    assert (refusal.value.status, refusal.value.param) == (400, "validation_file")
    assert "'fine-tune-results'" in refusal.value.message


def test_a_long_purpose_is_not_repeated_whole() -> None:
    assert wrong_purpose("p" * 1_000) == f"'{'p' * 64}' is not supported here; use fine-tune, batch"
