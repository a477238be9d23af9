"""`dataset` → files."""

from typing import assert_never

from schemas.dataset import (
    DatasetPinned,
    DatasetPrepared,
    DatasetReady,
    DatasetUnpinned,
    Event,
    FileDeleted,
    FileRegistered,
    FileUnreadable,
    FileValidated,
    PinRefused,
    PreparationDue,
    PreparationFailed,
)
from schemas.envelope import Header, Rejected, Repeated
from services.gateway.domain.tables import FILES
from services.gateway.project.rows import drop, put
from tunery.runtime.verbs import Change


def project_dataset(header: Header, event: Event) -> tuple[Change, ...]:
    match event:
        case FileRegistered():
            key = {"tenant": header.key, "id": event.file_id}
            values = {
                "purpose": event.purpose,
                "name": event.name,
                "bytes": event.bytes,
                "sha256": event.sha256,
                "blob": event.blob,
                "status": "uploaded",
            }
            return (put(FILES, key, place=header.seq, created_at=header.at, **values),)
        case FileValidated():
            key = {"tenant": header.key, "id": event.file_id}
            status = "processed" if event.validation.accepted else "error"
            return (put(FILES, key, status=status, validation=event.validation),)
        case FileUnreadable():
            key = {"tenant": header.key, "id": event.file_id}
            return (put(FILES, key, status="error", failure=event.failure),)
        case FileDeleted():
            return (drop(FILES, {"tenant": header.key, "id": event.file_id}),)
        case (
            PreparationDue()
            | DatasetPinned()
            | DatasetPrepared()
            | PreparationFailed()
            | DatasetReady()
            | PinRefused()
            | DatasetUnpinned()
            | Rejected()
            | Repeated()
        ):
            return ()
        case _:
            assert_never(event)
