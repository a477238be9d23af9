"""Reacts to events of the stream "dataset": tells jobs about their files and datasets."""

from typing import Final

from schemas.dataset import (
    DatasetReady,
    Event,
    FileDeleted,
    FileUnreadable,
    FileValidated,
    PinRefused,
)
from schemas.envelope import Header
from schemas.job import RecordDataset, RecordFile
from tunery.runtime.verbs import Send

DELETED: Final = "The file was deleted."
REJECTED: Final = "The job failed due to an invalid training file."
LISTED: Final = "GET /v1/files/{file_id}/validation lists every problem."


def react_dataset(header: Header, event: Event) -> tuple[Send, ...]:
    """The commands to jobs that follow from one event."""
    match event:
        case FileValidated():
            body: RecordFile | RecordDataset = _validated(event)
        case FileUnreadable():
            body = RecordFile(
                file_id=event.file_id, accepted=False, tokens=(), message=event.failure
            )
        case FileDeleted():
            # a job may wait for a validation that will not happen any more
            body = RecordFile(file_id=event.file_id, accepted=False, tokens=(), message=DELETED)
        case DatasetReady():
            body = RecordDataset(job_id=event.job_id, prepared=event.prepared)
        case PinRefused():
            body = RecordDataset(
                job_id=event.job_id, prepared=None, code=event.code, message=event.message
            )
        case _:
            return ()
    return (Send("job", header.key, header.tenant, body),)


def _validated(event: FileValidated) -> RecordFile:
    validation = event.validation
    sentences = (REJECTED, validation.message or "", LISTED.format(file_id=event.file_id))
    return RecordFile(
        file_id=event.file_id,
        accepted=validation.accepted,
        tokens=validation.tokens,
        message=None if validation.accepted else " ".join(filter(None, sentences)),
        code=validation.code,
    )
