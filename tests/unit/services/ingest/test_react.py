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
from schemas.envelope import Header, Rejected
from schemas.job import RecordDataset, RecordFile
from services.ingest.react import DELETED, react_dataset
from tests.unit.services.ingest.test_project import AT, PREPARED
from tunery.runtime.verbs import Send


def sent(event: Event, header: Header = AT) -> Send:
    (send,) = react_dataset(header, event)
    assert (send.stream, send.key, send.tenant) == ("job", header.key, header.tenant)
    return send


def validated(*, accepted: bool, code: str | None = None, message: str | None = None) -> Event:
    validation = Validation(
        accepted=accepted,
        dialect="chat",
        rows=7,
        errors=0,
        warnings=0,
        tokens=(),
        report_blob="reports/f",
        code=code,
        message=message,
    )
    return FileValidated(file_id="f", validation=validation)


def test_an_accepted_file_has_no_message() -> None:
    accepted = RecordFile(file_id="f", accepted=True, tokens=(), message=None)
    assert sent(validated(accepted=True)).body == accepted


def test_a_rejected_file_is_explained_in_sentences() -> None:
    few = "Training file has 7 example(s), but must have at least 10 examples."
    body = sent(validated(accepted=False, code=errors.EXAMPLES, message=few)).body
    assert isinstance(body, RecordFile)
    assert body.code == "invalid_n_examples"
    assert body.message == (
        "The job failed due to an invalid training file. Training file has 7 example(s), but must "
        "have at least 10 examples. GET /v1/files/f/validation lists every problem."
    )


def test_a_rejection_without_a_sentence_still_names_the_report() -> None:
    body = sent(validated(accepted=False)).body
    assert isinstance(body, RecordFile)
    assert body.message == (
        "The job failed due to an invalid training file. "
        "GET /v1/files/f/validation lists every problem."
    )


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (FileUnreadable(file_id="f", failure="Out of memory."), "Out of memory."),
        (FileDeleted(file_id="f", blob="b", report_blob=None), DELETED),
    ],
)
def test_a_file_that_cannot_be_validated_any_more_is_rejected(event: Event, message: str) -> None:
    assert sent(event).body == RecordFile(file_id="f", accepted=False, tokens=(), message=message)


def test_a_dataset_is_ready_or_refused_with_a_code() -> None:
    ready = sent(DatasetReady(job_id="j", prepared=PREPARED))
    assert ready.body == RecordDataset(job_id="j", prepared=PREPARED)
    refused = sent(PinRefused(job_id="j", code="x", message="m"))
    assert refused.body == RecordDataset(job_id="j", prepared=None, code="x", message="m")


@pytest.mark.parametrize(
    "event",
    [
        DatasetUnpinned(job_id="j"),
        PreparationFailed(prepare_id="p", failure="x"),
        Rejected(code="x", message="m"),
    ],
)
def test_other_events_concern_no_job(event: Event) -> None:
    assert react_dataset(AT, event) == ()
