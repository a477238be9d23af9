"""Bodies and responses of batches."""

import json
from typing import Final, Literal

from schemas.batch import BatchCounts, BatchEndpoint
from schemas.units import DAY_MS, Ms
from services.gateway.batches.domain.rows import problem_words
from services.gateway.files.domain.bodies import ExpiresAfter
from services.gateway.views.tables.batches import BatchRow
from services.gateway.web.domain.bodies import Body, Id, Metadata
from services.gateway.web.domain.responses import ListItem, Response, Seconds, Unseal

WINDOW_MS: Final[Ms] = DAY_MS  # of a `completion_window` of 24h, the only one that OpenAI has


class BatchRequest(Body):
    """Request to answer the rows of a file that was uploaded with purpose `batch`.

    `output_expires_after`: when the files with answers and errors expire.
    """

    input_file_id: Id
    endpoint: BatchEndpoint
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


BatchStatus = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]


class BatchErrorResponse(Response):
    """A problem of the input file. `line`: number of the row, from 1."""

    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrorsResponse(Response):
    object: Literal["list"] = "list"
    data: list[BatchErrorResponse]


class RequestCountsResponse(Response):
    """Numbers of rows."""

    total: int
    completed: int
    failed: int


class BatchResponse(ListItem):
    """A batch. Times are null until the batch has come that far."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: BatchEndpoint
    errors: BatchErrorsResponse | None
    input_file_id: str
    completion_window: Literal["24h"] = "24h"
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: Seconds
    in_progress_at: Seconds | None
    expires_at: Seconds
    finalizing_at: Seconds | None
    completed_at: Seconds | None
    failed_at: Seconds | None
    expired_at: Seconds | None
    cancelling_at: Seconds | None
    cancelled_at: Seconds | None
    request_counts: RequestCountsResponse
    metadata: dict[str, str] | None


def batch_response(row: BatchRow, unseal: Unseal) -> BatchResponse:
    """A batch in OpenAI's shape."""
    status, result, counts = status_of(row), row.result, row.counts or BatchCounts()
    metadata = unseal(row.metadata, "metadata")
    errors = [
        BatchErrorResponse.of(problem, message=problem_words(problem))
        for problem in (() if result is None else result.problems)
    ]
    ended: dict[str, Ms | None] = {
        f"{end}_at": None for end in ("completed", "failed", "expired", "cancelled")
    }
    if row.ended_at is not None:
        ended[f"{status}_at"] = row.ended_at
    return BatchResponse.of(
        row,
        status=status,
        errors=BatchErrorsResponse(data=errors) if errors else None,
        output_file_id=None if result is None else result.output_file_id,
        error_file_id=None if result is None else result.error_file_id,
        in_progress_at=row.begun_at,
        expires_at=row.created_at + row.window_ms,
        finalizing_at=None if row.why == "cancelled" else row.closing_at,
        cancelling_at=row.closing_at if row.why == "cancelled" else None,
        request_counts=RequestCountsResponse.of(counts, total=row.rows or 0),
        metadata=_pairs(metadata),
        **ended,
    )


def status_of(row: BatchRow) -> BatchStatus:
    """The status of a batch in OpenAI's words."""
    if row.result is not None:
        return "failed" if row.result.problems or row.why is None else row.why
    if row.why is not None:
        return "cancelling" if row.why == "cancelled" else "finalizing"
    return "validating" if row.rows is None else "in_progress"


def _pairs(metadata: str | None) -> dict[str, str] | None:
    try:
        return None if metadata is None else json.loads(metadata)
    except ValueError:
        return None  # it was erased
