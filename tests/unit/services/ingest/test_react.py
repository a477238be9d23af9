"""Commands to jobs about their files and datasets."""

import pytest

from schemas import errors
from schemas.dataset import (
    DatasetReady,
    DatasetUnpinned,
    Event,
    FileDeleted,
    FileUnreadable,
    FileValidated,
    PinRefused,
    PreparationFailed,
    Validation,
)
from schemas.envelope import Header, Reason, Rejected
from schemas.job import RecordDataset, RecordFile
from schemas.reasons import Failure, failing, rejecting
from services.ingest.react import react_dataset
from tests.unit.services.ingest.test_project import AT, PREPARED
from tunery.runtime.verbs import Send

UNCHECKED = Failure(code=errors.FILE_REJECTED, reason=failing("file_unchecked"))
DELETED = Failure(code=errors.FILE_REJECTED, reason=failing("file_deleted"))


def sent(event: Event, header: Header = AT) -> Send:
    (send,) = react_dataset(header, event)
    assert (send.stream, send.key, send.tenant) == ("job", header.key, header.tenant)
    return send


def validated(*, accepted: bool, failure: Failure | None = None) -> Event:
    validation = Validation(
        accepted=accepted,
        dialect="chat",
        rows=7,
        errors=0,
        warnings=0,
        tokens=(),
        report_blob="reports/f",
        failure=failure,
    )
    return FileValidated(file_id="f", validation=validation)


def test_an_accepted_file_has_no_failure() -> None:
    accepted = RecordFile(file_id="f", accepted=True, tokens=())
    assert sent(validated(accepted=True)).body == accepted


def test_a_rejected_file_is_explained_with_its_code_and_reason() -> None:
    few = Failure(code=errors.EXAMPLES, reason=rejecting("rows_too_few", rows=7, limit=10))
    body = sent(validated(accepted=False, failure=few)).body
    assert body == RecordFile(file_id="f", accepted=False, tokens=(), failure=few)


def test_a_rejection_without_a_reason_is_left_to_the_job() -> None:
    body = sent(validated(accepted=False)).body
    assert body == RecordFile(file_id="f", accepted=False, tokens=(), failure=None)


@pytest.mark.parametrize(
    ("event", "failure"),
    [
        (FileUnreadable(file_id="f", failure=UNCHECKED), UNCHECKED),
        (FileDeleted(file_id="f", blob="b", report_blob=None), DELETED),
    ],
)
def test_a_file_that_cannot_be_validated_any_more_is_rejected(
    event: Event, failure: Failure
) -> None:
    assert sent(event).body == RecordFile(file_id="f", accepted=False, tokens=(), failure=failure)


def test_a_dataset_is_ready_or_refused_with_a_failure() -> None:
    ready = sent(DatasetReady(job_id="j", prepared=PREPARED))
    assert ready.body == RecordDataset(job_id="j", prepared=PREPARED)
    refused = sent(PinRefused(job_id="j", failure=UNCHECKED))
    assert refused.body == RecordDataset(job_id="j", prepared=None, failure=UNCHECKED)


@pytest.mark.parametrize(
    "event",
    [
        DatasetUnpinned(job_id="j"),
        PreparationFailed(prepare_id="p", failure=UNCHECKED),
        Rejected(code="x", reason=Reason(code="y")),
    ],
)
def test_other_events_concern_no_job(event: Event) -> None:
    assert react_dataset(AT, event) == ()
