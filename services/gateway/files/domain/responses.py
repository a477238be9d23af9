"""Files and their validation, datasets, uploads."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from schemas.dataset import Validation
from services.gateway.files.domain.names import label
from services.gateway.views.tables.files import (
    DatasetRow,
    FileRow,
    FileStatus,
    PartRow,
    UploadRow,
    UploadStatus,
)
from services.gateway.web.domain.responses import ListItem, Response, Seconds, Unseal
from services.gateway.wording import failure_words, file_words

# of `BaseTokens`; its packing plans are for the estimate
COUNTED: Final = (
    *("base_id", "base_sha256", "tokens", "trainable_tokens", "longest_row_tokens"),
    "reasoning",
)


class ValidationSummaryResponse(Response):
    """Summary of a file's validation. `tokens`: counts of the whole file, by base model."""

    accepted: bool
    dialect: str
    rows: int
    errors: int
    warnings: int
    tokens: dict[str, int]


class FileResponse(ListItem):
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: Seconds
    expires_at: Seconds | None
    filename: str | None
    purpose: str
    status: FileStatus
    status_details: str | None
    sha256: str
    dataset: str | None
    validation: ValidationSummaryResponse | None


class FileValidationResponse(Response):
    """A file without a report. `accepted`: null before the validation, false for one unreadable."""

    id: str
    object: Literal["file.validation"] = "file.validation"
    status: Literal["pending", "done"]
    accepted: bool | None


class UnreadableFileResponse(FileValidationResponse):
    """The file could not be checked; `failure` says why."""

    failure: str


class FileReportResponse(FileValidationResponse):
    """A file with its report. `report`: the validator's own, every finding with row, line, pointer,
    code and hint.

    `tokens`: exact counts for each base model; with `reasoning` "drop" jobs have to drop it, since
    its chat template leaves it out. `code`, `message`: why the file is not accepted.
    """

    dialect: str
    rows: int
    errors: int
    warnings: int
    tokens: list[dict[str, Any]]
    code: str | None
    message: str | None
    report: Any


class DatasetResponse(ListItem):
    """A dataset. `latest_version`: the highest version number so far; its file may have been
    deleted.
    """

    id: str | None
    object: Literal["dataset"] = "dataset"
    latest_version: int
    latest_file: str
    updated_at: Seconds


class FileVersionResponse(Response):
    """One side of a comparison. `id`: `name@version`, or the file's id. `faulty`: rows that cannot
    be read or compared.
    """

    id: str
    sha256: str
    rows: int
    faulty: int
    file: str


class FileDifferenceResponse(Response):
    """Row numbers, at most 1,000 of each kind; the counts are of all."""

    object: Literal["file.diff"] = "file.diff"
    before: FileVersionResponse
    after: FileVersionResponse
    same: int
    added_count: int
    removed_count: int
    changed_count: int
    added: list[int]
    removed: list[int]
    changed: list[list[int]]


class UploadResponse(ListItem):
    id: str
    object: Literal["upload"] = "upload"
    bytes: int
    created_at: Seconds
    expires_at: Seconds
    filename: str | None
    purpose: str
    status: UploadStatus
    mime_type: str
    file: FileResponse | None


class UploadPartResponse(ListItem):
    id: str
    object: Literal["upload.part"] = "upload.part"
    created_at: Seconds
    upload_id: str
    bytes: int
    sha256: str


def file_response(row: FileRow, unseal: Unseal) -> FileResponse:
    """A file with a summary of its validation."""
    return FileResponse.of(
        row,
        filename=unseal(row.name, "name"),
        status_details=_details(row, unseal),
        dataset=label(row, unseal),
        validation=None if row.validation is None else _summary(row.validation),
    )


def _summary(validation: Validation) -> ValidationSummaryResponse:
    tokens = {counted.base_id: counted.tokens for counted in validation.tokens}
    return ValidationSummaryResponse.of(validation, tokens=tokens)


def dataset_response(row: DatasetRow, unseal: Unseal) -> DatasetResponse:
    return DatasetResponse.of(
        row,
        id=unseal(row.name, "dataset"),
        latest_version=row.version,
        latest_file=row.file_id,
    )


def difference_response(
    difference: Mapping[str, Any], before: tuple[str, str], after: tuple[str, str]
) -> FileDifferenceResponse:
    """The response to a comparison.

    difference: answer of the preview process
    before, after: name and file of each side
    """
    sides = {
        side: FileVersionResponse(**{**difference[side], "id": name, "file": file_id})
        for side, (name, file_id) in (("before", before), ("after", after))
    }
    return FileDifferenceResponse(**{**difference, **sides})


def upload_response(row: UploadRow, file: FileRow | None, unseal: Unseal) -> UploadResponse:
    """The response for an upload. file: a completed upload's file; None: deleted since."""
    return UploadResponse.of(
        row,
        filename=unseal(row.name, "name"),
        mime_type=row.media_type,
        file=None if file is None else file_response(file, unseal),
    )


def part_response(row: PartRow) -> UploadPartResponse:
    return UploadPartResponse.of(row)


def _details(row: FileRow, unseal: Unseal) -> str | None:
    if row.status != "error":
        return None
    if row.validation is None:
        return _unreadable(row, unseal)
    # OpenAI's clients show this sentence alone, so it says the first problem itself.
    count, failure = row.validation.errors, row.validation.failure
    first = f"{count} problem(s)." if failure is None else file_words(failure.reason)
    return f"{first} GET /v1/files/{row.id}/validation lists every problem with row and fix"


def _unreadable(row: FileRow, unseal: Unseal) -> str:
    """Return why a file is unreadable: our words, then the error of the process, which may quote
    data.
    """
    failure = row.failure
    if failure is None:
        return "The file could not be checked: unknown reason"
    return " ".join(
        text for text in (failure_words(failure), unseal(failure.detail, "detail")) if text
    )


def validation_response(row: FileRow, report: Any, unseal: Unseal) -> FileValidationResponse:
    """The state of a file's validation. `report`: of the validator; None while there is none."""
    validation = row.validation
    if row.status == "error" and validation is None:
        return UnreadableFileResponse(
            id=row.id, status="done", accepted=False, failure=_unreadable(row, unseal)
        )
    status: Literal["pending", "done"] = "pending" if row.status == "uploaded" else "done"
    if validation is None:
        return FileValidationResponse(id=row.id, status=status, accepted=None)
    return FileReportResponse.of(
        validation,
        id=row.id,
        status=status,
        tokens=[
            {name: getattr(counted, name) for name in COUNTED} for counted in validation.tokens
        ],
        code=None if validation.failure is None else validation.failure.code,
        message=None if validation.failure is None else file_words(validation.failure.reason),
        report=report,
    )
