"""Batches in OpenAI's shape: status and times."""

from typing import Any

import pytest
from msgspec.structs import replace
from openai.types import Batch

from schemas.batch import BatchCounts, BatchProblem, BatchResult
from services.gateway.batches.domain.responses import batch_response
from services.gateway.views.tables.batches import BatchRow
from tests.unit.services.billing.domain.test_batches import BLOB

ROW = BatchRow(
    id="batch_1",
    tenant="acme",
    sequence=1,
    created_at=1_000,
    endpoint="/v1/chat/completions",
    input_file_id="file-1",
    content=BLOB,
    key_id="key_1",
    window_ms=86_400_000,
)
BEGUN = replace(ROW, begun_at=2_000, rows=3, counts=BatchCounts(completed=1))
WRITTEN = BatchResult(batch_id="batch_1", output_file_id="file-2")


def ended(why: Any) -> BatchRow:
    return replace(BEGUN, why=why, closing_at=3_000, result=WRITTEN, ended_at=4_000)


@pytest.mark.parametrize(
    ("row", "status", "times"),
    [
        (ROW, "validating", {}),
        (BEGUN, "in_progress", {}),
        (replace(BEGUN, why="completed", closing_at=3_000), "finalizing", {"finalizing_at": 3}),
        (replace(BEGUN, why="expired", closing_at=3_000), "finalizing", {"finalizing_at": 3}),
        (replace(BEGUN, why="cancelled", closing_at=3_000), "cancelling", {"cancelling_at": 3}),
        (ended("completed"), "completed", {"finalizing_at": 3, "completed_at": 4}),
        (ended("expired"), "expired", {"finalizing_at": 3, "expired_at": 4}),
        (ended("cancelled"), "cancelled", {"cancelling_at": 3, "cancelled_at": 4}),
    ],
)
def test_a_batch_is_read_by_openais_package(
    row: BatchRow, status: str, times: dict[str, int]
) -> None:
    document = batch_response(row, lambda sealed, field: None).model_dump(mode="json")
    batch = Batch.model_validate(document)
    assert (batch.status, batch.created_at, batch.expires_at) == (status, 1, 86_401)
    shown = {
        name: value
        for name, value in document.items()
        if name.endswith("_at") and name not in ("created_at", "expires_at", "in_progress_at")
    }
    assert {name: value for name, value in shown.items() if value is not None} == times


def test_a_failed_batch_names_its_problems() -> None:
    problem = BatchProblem(code="missing_required_parameter", line=2, param="url")
    result = BatchResult(batch_id="batch_1", problems=(problem,))
    failed = replace(ROW, result=result, ended_at=4_000)
    batch = batch_response(failed, lambda sealed, field: "[redacted]")
    assert (batch.status, batch.failed_at, batch.metadata) == ("failed", 4_000, None)
    assert batch.errors is not None
    (error,) = batch.errors.data
    assert error.message == "Missing required parameter: 'url'."
