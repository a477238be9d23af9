"""Fold of the `dataset` journal: total, whatever the order of events."""

from typing import assert_never

from msgspec.structs import replace

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
from schemas.envelope import Context, Rejected, Repeated
from schemas.units import Ms
from services.ingest.domain.state import (
    File,
    FileStatus,
    Kept,
    Libraries,
    Library,
    Pin,
    Preparation,
    Upload,
    orphaned,
)


def evolve(state: Libraries, event: Event, ctx: Context) -> Libraries:
    library = state.get(ctx.key, Library())
    changed = evolve_library(library, event)
    return state if changed is library else state.set(ctx.key, changed)


def evolve_library(library: Library, event: Event) -> Library:
    return library if isinstance(event, Rejected | Repeated) else _evolved(library, event)


Changed = (
    FileRegistered
    | UploadCreated
    | PartAdded
    | UploadEnded
    | FileValidated
    | FileUnreadable
    | FileDeleted
    | PreparationDue
    | DatasetPinned
    | DatasetPrepared
    | PreparationFailed
    | DatasetReady
    | PinRefused
    | DatasetUnpinned
    | DatasetKept
    | DatasetReleased
)


def _evolved(library: Library, event: Changed) -> Library:
    match event:
        case FileRegistered():
            file = File(purpose=event.purpose, sha256=event.sha256, blob=event.blob)
            library = _expiring(library, event.file_id, event.expires_at)
            if event.dataset is not None and event.version is not None:
                numbers = library.versions.set(event.dataset.key, event.version)
                library = replace(library, versions=numbers)
            return replace(library, files=library.files.set(event.file_id, file))
        case UploadCreated() | PartAdded() | UploadEnded():
            return _upload(library, event)
        case FileValidated():
            status: FileStatus = "accepted" if event.validation.accepted else "rejected"
            return _judged(library, event.file_id, status, event.validation.report_blob)
        case FileUnreadable():
            return _judged(library, event.file_id, "rejected", None)
        case FileDeleted():
            return _deleted(library, event.file_id)
        case DatasetPinned():
            pin = Pin(
                training_file=event.training_file,
                validation_file=event.validation_file,
                prepare_id=event.prepare_id,
                spec=event.spec,
            )
            return replace(library, pins=library.pins.set(event.job_id, pin))
        case PinRefused() | DatasetUnpinned():
            if event.job_id not in library.pins:
                return library
            return replace(library, pins=library.pins.delete(event.job_id))
        case DatasetKept() | DatasetReleased():
            return _lineage(library, event)
        case DatasetReady():
            return library
        case PreparationDue() | DatasetPrepared() | PreparationFailed():
            return _preparation(library, event)
        case _:
            assert_never(event)


def _expiring(library: Library, name: str, at: Ms | None) -> Library:
    """`at` null: it no longer goes by itself."""
    if at is not None:
        return replace(library, expires=library.expires.set(name, at))
    if name not in library.expires:
        return library
    return replace(library, expires=library.expires.delete(name))


def _upload(library: Library, event: UploadCreated | PartAdded | UploadEnded) -> Library:
    uploads = library.uploads
    match event:
        case UploadCreated():
            upload = Upload(
                purpose=event.purpose,
                name=event.name,
                bytes=event.bytes,
                expires_after_ms=event.expires_after_ms,
                dataset=event.dataset,
                rows_max=event.rows_max,
            )
            library = _expiring(library, event.upload_id, event.expires_at)
            return replace(library, uploads=uploads.set(event.upload_id, upload))
        case PartAdded():
            if event.upload_id not in uploads:
                return library
            upload = uploads[event.upload_id]
            grown = replace(upload, parts=upload.parts.set(event.part_id, event.bytes))
            return replace(library, uploads=uploads.set(event.upload_id, grown))
        case UploadEnded():
            if event.upload_id not in uploads:
                return library
            library = _expiring(library, event.upload_id, None)
            return replace(library, uploads=uploads.delete(event.upload_id))
        case _:
            assert_never(event)


def _judged(library: Library, file_id: str, status: FileStatus, report_blob: str | None) -> Library:
    file = library.files.get(file_id)
    if file is None:
        return library
    judged = replace(file, status=status, report_blob=report_blob)
    return replace(library, files=library.files.set(file_id, judged))


def _deleted(library: Library, file_id: str) -> Library:
    if file_id not in library.files:
        return library
    library = _expiring(library, file_id, None)
    preparations = library.preparations
    for name in orphaned(library, file_id):
        preparations = preparations.delete(name)
    return replace(library, files=library.files.delete(file_id), preparations=preparations)


def _lineage(library: Library, event: DatasetKept | DatasetReleased) -> Library:
    match event:
        case DatasetKept():
            files = (event.training_file, event.validation_file)
            named = tuple(name for name in files if name is not None)
            kept = Kept(model_id=event.model_id, files=named)
            return replace(library, kept=library.kept.set(event.job_id, kept))
        case DatasetReleased():
            if event.job_id not in library.kept:
                return library
            return replace(library, kept=library.kept.delete(event.job_id))
        case _:
            assert_never(event)


def _preparation(
    library: Library, event: PreparationDue | DatasetPrepared | PreparationFailed
) -> Library:
    known = library.preparations
    match event:
        case PreparationDue():
            second = () if event.validation_sha256 is None else (event.validation_sha256,)
            begun = Preparation(sources=(event.training_sha256, *second))
            return replace(library, preparations=known.set(event.prepare_id, begun))
        case DatasetPrepared():
            before = known.get(event.prepare_id, Preparation(sources=()))
            done = replace(before, prepared=event.prepared)
            return replace(library, preparations=known.set(event.prepare_id, done))
        case PreparationFailed():
            if event.prepare_id not in known:
                return library
            return replace(library, preparations=known.delete(event.prepare_id))
        case _:
            assert_never(event)
