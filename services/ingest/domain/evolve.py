"""The fold of the journal of "dataset". It accepts every event in every state."""

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
    UnnamedDiscarded,
    UploadCreated,
    UploadEnded,
    WorkDiscarded,
)
from schemas.envelope import Context, Rejected, Repeated
from schemas.erasure import FilesErased
from schemas.units import Ms
from services.ingest.domain.erasure import evolve_erasure
from services.ingest.domain.quotas import counted_bytes
from services.ingest.domain.state import (
    DatasetsByTenant,
    FileState,
    FileStatus,
    LineageHold,
    PendingUpload,
    Pin,
    Preparation,
    TenantDatasets,
    orphaned_preparations,
    without_preparation,
)


def evolve(state: DatasetsByTenant, event: Event, ctx: Context) -> DatasetsByTenant:
    datasets = state.get(ctx.key, TenantDatasets())
    changed = evolve_tenant(datasets, event)
    return state if changed is datasets else state.set(ctx.key, changed)


def evolve_tenant(datasets: TenantDatasets, event: Event) -> TenantDatasets:
    return datasets if isinstance(event, Rejected | Repeated) else _apply(datasets, event)


StateEvent = (
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
    | WorkDiscarded
    | UnnamedDiscarded
    | DatasetReady
    | PinRefused
    | DatasetUnpinned
    | DatasetKept
    | DatasetReleased
    | FilesErased
)


def _apply(datasets: TenantDatasets, event: StateEvent) -> TenantDatasets:
    match event:
        case FileRegistered():
            file = FileState(
                purpose=event.terms.purpose,
                sha256=event.content.sha256,
                blob=event.content.blob,
                bytes=event.content.bytes,
            )
            datasets = _count_bytes(datasets, event.file_id, file)
            datasets = _set_expiry(datasets, event.file_id, event.expires_at)
            if (dataset := event.terms.dataset) is not None and event.version is not None:
                numbers = datasets.versions.set(dataset.key, event.version)
                datasets = replace(datasets, versions=numbers)
            return replace(datasets, files=datasets.files.set(event.file_id, file))
        case UploadCreated() | PartAdded() | UploadEnded():
            return _upload(datasets, event)
        case FileValidated():
            status: FileStatus = "accepted" if event.validation.accepted else "rejected"
            return _set_status(datasets, event.file_id, status, event.validation.report_blob)
        case FileUnreadable():
            return _set_status(datasets, event.file_id, "rejected", None)
        case FileDeleted():
            return _deleted(datasets, event.file_id)
        case DatasetPinned():
            pin = Pin(terms=event.terms, prepare_id=event.prepare_id)
            return replace(datasets, pins=datasets.pins.set(event.job_id, pin))
        case PinRefused() | DatasetUnpinned():
            if event.job_id not in datasets.pins:
                return datasets
            return replace(datasets, pins=datasets.pins.delete(event.job_id))
        case DatasetKept() | DatasetReleased():
            return _lineage(datasets, event)
        case DatasetReady() | WorkDiscarded() | UnnamedDiscarded():
            return datasets
        case FilesErased():
            return evolve_erasure(datasets, event)
        case PreparationDue() | DatasetPrepared() | PreparationFailed():
            return _preparation(datasets, event)
        case _:
            assert_never(event)


def _count_bytes(datasets: TenantDatasets, file_id: str, after: FileState | None) -> TenantDatasets:
    """Count the bytes of a file that comes, or goes (None)."""
    change = counted_bytes(after) - counted_bytes(datasets.files.get(file_id))
    return replace(datasets, stored_bytes=datasets.stored_bytes + change)


def _set_expiry(datasets: TenantDatasets, name: str, at: Ms | None) -> TenantDatasets:
    """Set when a file or an upload expires; None for never."""
    if at is not None:
        return replace(datasets, expires=datasets.expires.set(name, at))
    if name not in datasets.expires:
        return datasets
    return replace(datasets, expires=datasets.expires.delete(name))


def _upload(
    datasets: TenantDatasets, event: UploadCreated | PartAdded | UploadEnded
) -> TenantDatasets:
    uploads = datasets.uploads
    match event:
        case UploadCreated():
            upload = PendingUpload(terms=event.terms)
            datasets = _set_expiry(datasets, event.upload_id, event.expires_at)
            return replace(datasets, uploads=uploads.set(event.upload_id, upload))
        case PartAdded():
            if event.upload_id not in uploads:
                return datasets
            upload = uploads[event.upload_id]
            grown = replace(upload, parts=upload.parts.set(event.part.part_id, event.part.bytes))
            return replace(datasets, uploads=uploads.set(event.upload_id, grown))
        case UploadEnded():
            if event.upload_id not in uploads:
                return datasets
            datasets = _set_expiry(datasets, event.upload_id, None)
            return replace(datasets, uploads=uploads.delete(event.upload_id))
        case _:
            assert_never(event)


def _set_status(
    datasets: TenantDatasets, file_id: str, status: FileStatus, report_blob: str | None
) -> TenantDatasets:
    file = datasets.files.get(file_id)
    if file is None:
        return datasets
    changed = replace(file, status=status, report_blob=report_blob)
    return replace(datasets, files=datasets.files.set(file_id, changed))


def _deleted(datasets: TenantDatasets, file_id: str) -> TenantDatasets:
    if file_id not in datasets.files:
        return datasets
    datasets = _set_expiry(_count_bytes(datasets, file_id, None), file_id, None)
    for name in orphaned_preparations(datasets, file_id):
        datasets = without_preparation(datasets, name)
    return replace(datasets, files=datasets.files.delete(file_id))


def _lineage(datasets: TenantDatasets, event: DatasetKept | DatasetReleased) -> TenantDatasets:
    match event:
        case DatasetKept():
            files = (event.training_file, event.validation_file, *event.mixture)
            existing = tuple(name for name in files if name is not None)
            hold = LineageHold(model_id=event.model_id, files=existing)
            return replace(datasets, kept=datasets.kept.set(event.job_id, hold))
        case DatasetReleased():
            if event.job_id not in datasets.kept:
                return datasets
            return replace(datasets, kept=datasets.kept.delete(event.job_id))
        case _:
            assert_never(event)


def _preparation(
    datasets: TenantDatasets, event: PreparationDue | DatasetPrepared | PreparationFailed
) -> TenantDatasets:
    preparations = datasets.preparations
    match event:
        case PreparationDue():
            second = () if event.validation_sha256 is None else (event.validation_sha256,)
            mixed = tuple(source.sha256 for source in event.mixture)
            sources = (event.training_sha256, *second, *mixed)
            running = Preparation(sources=sources, work=event.work or event.prepare_id)
            return replace(
                datasets,
                preparations=preparations.set(event.prepare_id, running),
                prepared_by=datasets.prepared_by.set(running.work, event.prepare_id),
            )
        case DatasetPrepared():
            before = preparations.get(event.prepare_id, Preparation(sources=()))
            done = replace(before, prepared=event.prepared)
            return replace(datasets, preparations=preparations.set(event.prepare_id, done))
        case PreparationFailed():
            if event.prepare_id not in preparations:
                return datasets
            return without_preparation(datasets, event.prepare_id)
        case _:
            assert_never(event)
