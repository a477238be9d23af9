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
REJECTED: Final = "The file was rejected; GET /v1/files/{file_id}/validation lists every problem."


def react_dataset(header: Header, event: Event) -> tuple[Send, ...]:
    match event:
        case FileValidated():
            accepted = event.validation.accepted
            body: RecordFile | RecordDataset = RecordFile(
                file_id=event.file_id,
                accepted=accepted,
                tokens=event.validation.tokens,
                message=None if accepted else REJECTED.format(file_id=event.file_id),
            )
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
