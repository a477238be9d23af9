"""`dataset` → files, datasets, uploads."""

from typing import assert_never

from schemas.dataset import (
    DatasetKept,
    DatasetPinned,
    DatasetPrepared,
    DatasetReady,
    DatasetReleased,
    DatasetUnpinned,
    Event,
    FileDeleted,
    FileRegistered,
    FileUnreadable,
    FileValidated,
    PartAdded,
    PinRefused,
    PreparationDue,
    PreparationFailed,
    UnnamedDiscarded,
    UploadCreated,
    UploadEnded,
    WorkDiscarded,
)
from schemas.envelope import Header, Rejected, Repeated
from schemas.erasure import FilesErased
from services.gateway.views.tables.files import (
    DATASETS,
    FILES,
    UPLOAD_PARTS,
    UPLOADS,
    DatasetRow,
    FileRow,
    PartRow,
    UploadRow,
)
from tunery.runtime.verbs import Change


def project_dataset(header: Header, event: Event) -> tuple[Change, ...]:
    """Rows of files, datasets and uploads that follow from one event of `dataset`."""
    match event:
        case FileRegistered():
            return _registered(header, event)
        case UploadCreated() | PartAdded() | UploadEnded():
            return _upload(header, event)
        case FileValidated():
            key = {"tenant": header.key, "id": event.file_id}
            status = "processed" if event.validation.accepted else "error"
            return (FILES.update(key, status=status, validation=event.validation),)
        case FileUnreadable():
            key = {"tenant": header.key, "id": event.file_id}
            return (FILES.update(key, status="error", failure=event.failure),)
        case FileDeleted():
            return (FILES.delete({"tenant": header.key, "id": event.file_id}),)
        case (
            PreparationDue()
            | DatasetPinned()
            | DatasetPrepared()
            | PreparationFailed()
            | WorkDiscarded()
            | UnnamedDiscarded()
            | DatasetReady()
            | PinRefused()
            | DatasetUnpinned()
            | DatasetKept()
            | DatasetReleased()
            | FilesErased()
            | Rejected()
            | Repeated()
        ):
            return ()
        case _:
            assert_never(event)


def _registered(header: Header, event: FileRegistered) -> tuple[Change, ...]:
    """Rows of a new file. Only files for training are validated."""
    named, terms, content = event.terms.dataset, event.terms, event.content
    file = FileRow.of(
        event,
        terms,
        content,
        tenant=header.key,
        id=event.file_id,
        sequence=header.seq,
        created_at=header.at,
        status="uploaded" if terms.purpose == "fine-tune" else "processed",
        dataset=None if named is None else named.key,
        dataset_name=None if named is None else named.name,
    )
    if named is None or event.version is None:
        return (FILES.insert(file),)
    newest = DatasetRow(
        tenant=header.key,
        id=named.key,
        sequence=header.seq,
        name=named.name,
        version=event.version,
        file_id=event.file_id,
        updated_at=header.at,
    )
    return (FILES.insert(file), DATASETS.insert(newest))


def _upload(header: Header, event: UploadCreated | PartAdded | UploadEnded) -> tuple[Change, ...]:
    match event:
        case UploadCreated():
            return (_created(header, event),)
        case PartAdded():
            part = PartRow.of(
                event,
                event.part,
                tenant=header.key,
                id=event.part.part_id,
                sequence=header.seq,
                created_at=header.at,
            )
            return (UPLOAD_PARTS.insert(part),)
        case UploadEnded():
            key = {"tenant": header.key, "id": event.upload_id}
            ended = {"status": event.outcome, "part_ids": event.parts, "file_id": event.file_id}
            parts = (
                {"tenant": header.key, "upload_id": event.upload_id, "id": part}
                for part in event.parts
            )
            return (UPLOADS.update(key, **ended), *(UPLOAD_PARTS.delete(part) for part in parts))
        case _:
            assert_never(event)


def _created(header: Header, event: UploadCreated) -> Change:
    return UPLOADS.insert(
        UploadRow.of(
            event,
            event.terms,
            event.terms.file,
            tenant=header.key,
            id=event.upload_id,
            sequence=header.seq,
            created_at=header.at,
            status="pending",
        )
    )
