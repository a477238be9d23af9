"""Reacts to events of the stream "dataset": informs jobs about their files and datasets."""

from schemas import errors
from schemas.dataset import (
    DatasetReady,
    Event,
    FileDeleted,
    FileUnreadable,
    FileValidated,
    PinRefused,
)
from schemas.envelope import Header
from schemas.erasure import EraseFiles, FilesErased
from schemas.job import RecordDataset, RecordFile
from schemas.reasons import Failure, failing
from tunery.runtime.verbs import Send


def react_dataset(header: Header, event: Event) -> tuple[Send, ...]:
    """The commands to jobs that follow from one event."""
    match event:
        case FileValidated():
            body: RecordFile | RecordDataset = RecordFile(
                file_id=event.file_id,
                accepted=event.validation.accepted,
                tokens=event.validation.tokens,
                failure=event.validation.failure,
            )
        case FileUnreadable():
            body = RecordFile(
                file_id=event.file_id, accepted=False, tokens=(), failure=event.failure
            )
        case FileDeleted():
            # a job may wait for a validation that will not happen any more
            deleted = Failure(code=errors.FILE_REJECTED, reason=failing("file_deleted"))
            body = RecordFile(file_id=event.file_id, accepted=False, tokens=(), failure=deleted)
        case DatasetReady():
            body = RecordDataset(job_id=event.job_id, prepared=event.prepared)
        case PinRefused():
            body = RecordDataset(job_id=event.job_id, prepared=None, failure=event.failure)
        case FilesErased(more=True):
            return (Send("dataset", header.key, header.tenant, EraseFiles()),)
        case _:
            return ()
    return (Send("job", header.key, header.tenant, body),)
