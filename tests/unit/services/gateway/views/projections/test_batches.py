"""Rows of batches, and their to-dos."""

from schemas.batch import (
    BatchBegun,
    BatchClosing,
    BatchCounts,
    BatchCreated,
    BatchEnded,
    BatchEvent,
    BatchPart,
    BatchResult,
    BatchRowsAnswered,
)
from services.gateway.views.projections.batches import project_batch
from services.gateway.views.todos import BATCH_FILES, BATCH_ROWS
from tests.unit.services.billing.domain.test_batches import BLOB, TERMS
from tests.unit.services.scheduler.fold import header_of
from tunery.runtime.verbs import Change, Delete, Done, Todo, Upsert

KEY = {"tenant": "acme", "id": "batch_1"}
ROW_ID = "acme/batch_1"


def projected(event: BatchEvent) -> tuple[Change, ...]:
    return project_batch(header_of("account", "acme", 5), event)


def test_a_batch_has_a_todo_to_answer_rows_until_it_closes() -> None:
    created = BatchCreated(terms=TERMS)
    inserted, todo = projected(created)
    assert isinstance(inserted, Upsert)
    assert (inserted.key, inserted.values["input_file_id"]) == (KEY, "file-1")
    assert todo == Todo(BATCH_ROWS, ROW_ID, "acme", "acme", created)
    begun = projected(BatchBegun(batch_id="batch_1", rows=3))
    assert begun == (Upsert("batches", KEY, {"begun_at": 5, "rows": 3}),)
    closing = BatchClosing(batch_id="batch_1", why="expired")
    updated, *todos = projected(closing)
    assert updated == Upsert("batches", KEY, {"why": "expired", "closing_at": 5})
    files = Todo(BATCH_FILES, ROW_ID, "acme", "acme", closing)
    assert todos == [Done(BATCH_ROWS, ROW_ID), files]


def test_lines_are_kept_until_the_files_are_written() -> None:
    part = BatchPart(first=7, counts=BatchCounts(completed=8, failed=1), lines=BLOB)
    counts, lines = projected(BatchRowsAnswered(batch_id="batch_1", part=part))
    assert counts == Upsert("batches", KEY, {"counts": {"completed": 8, "failed": 1}})
    assert isinstance(lines, Upsert)
    assert lines.key == {"tenant": "acme", "batch_id": "batch_1", "id": "000007"}
    ended = projected(BatchEnded(result=BatchResult(batch_id="batch_1")))
    assert Delete("batch_parts", {"tenant": "acme", "batch_id": "batch_1"}) in ended
    assert {Done(kind, ROW_ID) for kind in (BATCH_ROWS, BATCH_FILES)} <= set(ended[2:])
