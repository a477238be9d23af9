"""What other streams hear of `dataset`: jobs that wait for a file, or for their pinned data set."""

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
    match event:
        case FileValidated():
            body: RecordFile | RecordDataset = _validated(event)
        case FileUnreadable():
            body = RecordFile(
                file_id=event.file_id, accepted=False, tokens=(), message=event.failure
            )
        case FileDeleted():
            # a job may wait for the validation that will now never come
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
    found = event.validation
    told = (REJECTED, found.message or "", LISTED.format(file_id=event.file_id))
    return RecordFile(
        file_id=event.file_id,
        accepted=found.accepted,
        tokens=found.tokens,
        message=None if found.accepted else " ".join(filter(None, told)),
        code=found.code,
    )
