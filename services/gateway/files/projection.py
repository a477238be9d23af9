"""`dataset` → files."""

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
    UploadCreated,
    UploadEnded,
)
from schemas.envelope import Header, Rejected, Repeated
from services.gateway.views.rows import RESULTS, drop, put, remembered, results_row
from services.gateway.views.tables import DATASETS, FILES, JOBS, UPLOAD_PARTS, UPLOADS
from tunery.runtime.verbs import Change, Done


def project_dataset(header: Header, event: Event) -> tuple[Change, ...]:
    match event:
        case FileRegistered():
            return _registered(header, event)
        case UploadCreated() | PartAdded() | UploadEnded():
            return _upload(header, event)
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
            | DatasetKept()
            | DatasetReleased()
            | Rejected()
            | Repeated()
        ):
            return ()
        case _:
            assert_never(event)


def _registered(header: Header, event: FileRegistered) -> tuple[Change, ...]:
    """Only what may be trained on is validated. A job's results are named by the job as well."""
    named = event.dataset
    file = put(
        FILES,
        {"tenant": header.key, "id": event.file_id},
        place=header.seq,
        created_at=header.at,
        purpose=event.purpose,
        name=event.name,
        bytes=event.bytes,
        sha256=event.sha256,
        blob=event.blob,
        status="uploaded" if event.purpose == "fine-tune" else "processed",
        expires_at=event.expires_at,
        dataset=None if named is None else named.key,
        dataset_name=None if named is None else named.name,
        version=event.version,
    )
    if named is not None:
        newest = put(
            DATASETS,
            {"tenant": header.key, "id": named.key},
            place=header.seq,
            name=named.name,
            version=event.version,
            file_id=event.file_id,
            updated_at=header.at,
        )
        return (file, newest)
    if event.job_id is None:
        return (file,)
    job = put(JOBS, {"tenant": header.key, "id": event.job_id}, result_file=event.file_id)
    done = Done(RESULTS, results_row(header.key, event.job_id))
    return (file, job, *remembered(header, job), done)


def _upload(header: Header, event: UploadCreated | PartAdded | UploadEnded) -> tuple[Change, ...]:
    key = {"tenant": header.key, "id": event.upload_id}
    match event:
        case UploadCreated():
            values = {
                "place": header.seq,
                "created_at": header.at,
                "expires_at": event.expires_at,
                "purpose": event.purpose,
                "name": event.name,
                "media_type": event.media_type,
                "bytes": event.bytes,
                "expires_after_ms": event.expires_after_ms,
                "status": "pending",
            }
            return (put(UPLOADS, key, **values),)
        case PartAdded():
            part = {"tenant": header.key, "upload_id": event.upload_id, "id": event.part_id}
            values = {"bytes": event.bytes, "sha256": event.sha256}
            return (put(UPLOAD_PARTS, part, place=header.seq, created_at=header.at, **values),)
        case UploadEnded():
            closed = put(
                UPLOADS, key, status=event.outcome, part_ids=event.parts, file_id=event.file_id
            )
            parts = ({**key, "upload_id": event.upload_id, "id": part} for part in event.parts)
            return (closed, *(drop(UPLOAD_PARTS, part) for part in parts))
        case _:
            assert_never(event)
