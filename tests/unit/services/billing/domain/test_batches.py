"""Each row of a batch ends once, and is billed once."""

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.answers import AnswersCounted, AnswerUse
from schemas.batch import (
    BATCHES_OPEN_MAX,
    AnswerBatchRows,
    BatchBegun,
    BatchClosing,
    BatchCounts,
    BatchCreated,
    BatchEnded,
    BatchPart,
    BatchResult,
    BatchRowsAnswered,
    BatchTerms,
    BeginBatch,
    CancelBatch,
    CreateBatch,
    EndBatch,
)
from schemas.dataset import FileContent
from schemas.envelope import Message, Rejected, Tick
from schemas.erasure import EraseTenant
from schemas.units import DAY_MS
from tests.unit.services.billing.domain.test_decide import refusal
from tests.unit.services.billing.domain.test_statements import tenant
from tests.unit.services.scheduler.fold import Decider

BLOB = FileContent(bytes=3, sha256="a" * 64, blob="t/acme/files/file-1")
TERMS = BatchTerms(
    batch_id="batch_1",
    endpoint="/v1/chat/completions",
    input_file_id="file-1",
    content=BLOB,
    key_id="key_1",
    window_ms=DAY_MS,
)
USE = AnswerUse(
    key_id="key_1",
    model="tiny",
    requests=2,
    prompt_tokens=40,
    cached_tokens=12,
    completion_tokens=96,
    engine_ms=1_450,
)
END = EndBatch(result=BatchResult(batch_id="batch_1", output_file_id="file-2"))


def rows(first: int, completed: int, failed: int = 0, uses: int = 1) -> AnswerBatchRows:
    """Report rows after `first`. completed, failed: rows of the batch that have ended so far."""
    counts = BatchCounts(completed=completed, failed=failed)
    part = BatchPart(first=first, counts=counts, lines=BLOB)
    return AnswerBatchRows(batch_id="batch_1", part=part, uses=(USE,) * uses)


def begun(count: int = 4) -> Decider:
    decider = tenant()
    assert decider.when(CreateBatch(terms=TERMS)) == (BatchCreated(terms=TERMS),)
    expected = (BatchBegun(batch_id="batch_1", rows=count),)
    assert decider.when(BeginBatch(batch_id="batch_1", rows=count)) == expected
    return decider


def kinds(events: tuple[Message, ...]) -> list[type[Message]]:
    return [type(event) for event in events]


def test_rows_are_answered_and_counted_together_and_the_last_ones_close_it() -> None:
    decider = begun()
    assert kinds(decider.when(rows(0, 2))) == [BatchRowsAnswered, AnswersCounted]
    closing = BatchClosing(batch_id="batch_1", why="completed")
    assert decider.when(rows(2, 3, 1))[-1] == closing
    assert decider.when(END) == (BatchEnded(result=END.result),)
    assert refusal(decider.when(END)) == errors.NOT_FOUND


def test_rows_without_answers_count_no_tokens() -> None:
    assert kinds(begun().when(rows(0, 0, 2, uses=0))) == [BatchRowsAnswered]


@pytest.mark.parametrize("again", [rows(0, 2), rows(0, 3), rows(3, 4), rows(2, 2)])
def test_rows_that_are_not_the_next_ones_are_refused(again: AnswerBatchRows) -> None:
    decider = begun().accept(rows(0, 2))
    assert refusal(decider.when(again)) == errors.ILLEGAL_STATE


def test_a_batch_is_created_once() -> None:
    assert refusal(begun().when(CreateBatch(terms=TERMS))) == errors.ALREADY_EXISTS


def test_a_batch_begins_once() -> None:
    assert begun().when(BeginBatch(batch_id="batch_1", rows=4)) == ()


def test_a_cancelled_batch_takes_no_more_answers() -> None:
    decider = begun().accept(rows(0, 2))
    closing = BatchClosing(batch_id="batch_1", why="cancelled")
    assert decider.when(CancelBatch(batch_id="batch_1")) == (closing,)
    assert decider.when(CancelBatch(batch_id="batch_1")) == ()
    assert refusal(decider.when(rows(2, 3))) == errors.ILLEGAL_STATE
    assert refusal(decider.when(BeginBatch(batch_id="batch_1", rows=4))) == errors.ILLEGAL_STATE
    assert kinds(decider.when(END)) == [BatchEnded]


def test_a_batch_expires_at_the_end_of_its_window() -> None:
    decider = begun()
    assert decider.due() == decider.at + DAY_MS
    decider.at += DAY_MS
    assert decider.when(Tick()) == (BatchClosing(batch_id="batch_1", why="expired"),)
    assert decider.due() != decider.at
    assert decider.when(Tick()) == ()


def test_a_tenant_has_a_limit_of_open_batches() -> None:
    decider = tenant()
    names = [f"batch_{number}" for number in range(BATCHES_OPEN_MAX)]
    decider.accept(*(CreateBatch(terms=replace(TERMS, batch_id=name)) for name in names))
    assert refusal(decider.when(CreateBatch(terms=TERMS))) == errors.CONCURRENCY_LIMIT


def test_batches_of_an_erased_tenant_are_gone() -> None:
    decider = begun().accept(EraseTenant())
    for command in (rows(0, 2), END, CreateBatch(terms=TERMS)):
        assert isinstance(decider.when(command)[0], Rejected)
    assert not decider.state.tenants["acme"].batches
