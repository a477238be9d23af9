"""Files, their validation, datasets and uploads as the API shows them."""

from msgspec.structs import replace

from schemas.reasons import Failure, rejecting
from schemas.sealed import Sealed
from services.gateway.files.domain.responses import (
    FileReportResponse,
    UnreadableFileResponse,
    dataset_response,
    difference_response,
    file_response,
    part_response,
    upload_response,
    validation_response,
)
from services.gateway.views.tables.files import DatasetRow, PartRow, UploadRow
from tests.unit.services.gateway.jobs.domain.test_resolve import FILE, UNCHECKED, VALIDATION

UPLOAD = UploadRow(
    tenant="acme",
    id="upload-1",
    sequence=1,
    created_at=1_999,
    expires_at=9_999,
    purpose="fine-tune",
    name=FILE.name,
    media_type="text/plain",
    bytes=10,
    expires_after_ms=None,
    status="pending",
)


def unseal(sealed: Sealed | None, _field: str) -> str | None:
    return None if sealed is None else "opened"


def test_a_file_counts_its_tokens_by_base_model() -> None:
    shown = file_response(FILE, unseal)
    assert shown.validation is not None
    assert shown.validation.tokens == {"tiny-llama": 20_000}
    assert (shown.filename, shown.dataset, shown.status_details) == ("opened", None, None)


def test_a_file_that_was_not_checked_yet_is_pending() -> None:
    assert file_response(UNCHECKED, unseal).validation is None
    shown = validation_response(UNCHECKED, None, unseal)
    assert (shown.status, shown.accepted) == ("pending", None)


def test_first_hour2_u12_a_rejected_file_says_its_first_problem_and_where_the_others_are() -> None:
    reason = rejecting("row_invalid", row=12, finding="missing_tool_result", errors=3)
    failure = Failure(code="invalid_training_file", reason=reason)
    validation = replace(VALIDATION, accepted=False, errors=3, failure=failure)
    details = file_response(
        replace(FILE, status="error", validation=validation), unseal
    ).status_details
    assert details is not None
    assert details.startswith("Invalid file format. Example 12: A tool call has no result")
    assert details.endswith("GET /v1/files/file-1/validation lists every problem with row and fix")


def test_an_unreadable_file_without_a_reason_is_still_reported() -> None:
    row = replace(UNCHECKED, status="error")
    shown = validation_response(row, None, unseal)
    assert isinstance(shown, UnreadableFileResponse)
    assert (shown.status, shown.accepted) == ("done", False)
    assert shown.failure == "The file could not be checked: unknown reason"
    assert file_response(row, unseal).status_details == shown.failure


def test_a_report_is_passed_on_as_the_validator_wrote_it() -> None:
    report = {"findings": [{"row": 3}]}
    shown = validation_response(FILE, report, unseal)
    assert isinstance(shown, FileReportResponse)
    assert (shown.accepted, shown.rows, shown.report) == (True, 20, report)
    assert shown.tokens[0]["base_id"] == "tiny-llama"


def test_first_hour_low_a_report_shows_no_internals() -> None:
    """Reports showed packing plans: [[128, 0, 6, 702], …]."""
    shown = validation_response(FILE, {}, unseal)
    assert isinstance(shown, FileReportResponse)
    for counted in shown.tokens:
        assert "plans" not in counted
        assert counted["tokens"] >= counted["trainable_tokens"] > 0


def test_a_file_is_called_by_its_version_until_the_name_is_erased() -> None:
    row = replace(FILE, dataset="key", dataset_name=FILE.name, version=2)
    assert file_response(row, unseal).dataset == "opened@2"
    assert file_response(row, lambda sealed, _field: None).dataset is None
    dataset = DatasetRow(
        tenant="acme",
        id="key",
        sequence=1,
        name=FILE.name,
        version=2,
        file_id="f",
        updated_at=2_999,
    )
    shown = dataset_response(dataset, unseal)
    assert (shown.id, shown.latest_version, shown.updated_at) == ("opened", 2, 2_999)


def test_an_upload_has_its_file_once_it_is_complete_and_while_it_is_kept() -> None:
    pending = upload_response(UPLOAD, None, unseal)
    assert (pending.status, pending.file, pending.expires_at) == (
        "pending",
        None,
        UPLOAD.expires_at,
    )
    done = upload_response(replace(UPLOAD, status="completed", file_id="file-1"), FILE, unseal)
    assert done.file is not None
    assert done.file.id == "file-1"


def test_a_part_names_its_upload_and_hash() -> None:
    row = PartRow(
        tenant="acme",
        upload_id="upload-1",
        id="part-1",
        sequence=1,
        created_at=1_999,
        bytes=5,
        sha256="ab" * 32,
    )
    shown = part_response(row)
    assert (shown.upload_id, shown.created_at, shown.sha256) == ("upload-1", 1_999, "ab" * 32)


def test_both_sides_of_a_difference_have_the_names_they_were_asked_by() -> None:
    side = {"sha256": "ab" * 32, "rows": 3, "faulty": 0}
    difference = {
        "before": side,
        "after": {**side, "rows": 4},
        "same": 3,
        "added_count": 1,
        "removed_count": 0,
        "changed_count": 0,
        "added": [4],
        "removed": [],
        "changed": [],
    }
    shown = difference_response(difference, ("faq@1", "file-1"), ("faq@2", "file-2"))
    assert (shown.before.id, shown.before.file, shown.before.rows) == ("faq@1", "file-1", 3)
    assert (shown.after.id, shown.after.file, shown.added) == ("faq@2", "file-2", [4])
