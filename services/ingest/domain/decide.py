"""Decisions of the stream "dataset": a file is validated once, equal content is prepared once."""

from collections.abc import Mapping
from typing import Final, assert_never

from msgspec.structs import replace

from schemas import errors
from schemas.dataset import (
    AddPart,
    CancelUpload,
    Command,
    CompleteUpload,
    CreateUpload,
    DatasetKept,
    DatasetPinned,
    DatasetPrepared,
    DatasetReady,
    DatasetReleased,
    DatasetUnpinned,
    DeleteFile,
    EraseUnnamed,
    Event,
    FileDeleted,
    FileRegistered,
    FileUnreadable,
    FileValidated,
    KeepDataset,
    MixedBlob,
    MixedFile,
    PinDataset,
    PinRefused,
    PreparationDue,
    PreparationFailed,
    PrepareSpec,
    RecordPrepared,
    RecordValidation,
    RegisterFile,
    ReleaseDataset,
    UnnamedDiscarded,
    UnpinDataset,
    WorkDiscarded,
    prepared_folder,
    report_folder,
)
from schemas.envelope import Context, Sha256, Tick, reject
from schemas.erasure import EraseFiles
from schemas.ids import derived_id
from schemas.reasons import Failure, failing, refusing
from schemas.records import build_from
from services.ingest.domain.erasure import decide_erased, erase_files, is_late
from services.ingest.domain.evolve import evolve_tenant
from services.ingest.domain.expiry import due, expires_at
from services.ingest.domain.quotas import check_bytes, check_file
from services.ingest.domain.state import (
    DatasetsByTenant,
    FileState,
    Pin,
    Preparation,
    TenantDatasets,
    needed_blobs,
    orphaned_preparations,
    source_hashes,
)
from services.ingest.domain.uploads import decide_upload, end_upload
from services.ingest.domain.versions import check_name, next_version

MODELS_NAMED_MAX: Final = 5  # in a refusal


def decide(state: DatasetsByTenant, command: Command, ctx: Context) -> tuple[Event, ...]:
    """The events of a command. Late and repeated reports give none.

    Commands of clients are refused with `Rejected`, those of jobs with `PinRefused`.
    """
    datasets = state.get(ctx.key, TenantDatasets())
    if is_late(datasets, command):
        return decide_erased(command, ctx)
    match command:
        case RegisterFile():
            return _register(datasets, command, ctx)
        case DeleteFile():
            return _delete(datasets, command, ctx.key)
        case CreateUpload() | AddPart() | CompleteUpload() | CancelUpload():
            return decide_upload(datasets, command, ctx)
        case RecordValidation():
            return _record_validation(datasets, command, ctx)
        case PinDataset():
            return _pin(datasets, command, ctx)
        case UnpinDataset():
            known = command.job_id in datasets.pins
            return (DatasetUnpinned(job_id=command.job_id),) if known else ()
        case KeepDataset():
            return _keep(datasets, command)
        case ReleaseDataset():
            kept = command.job_id in datasets.kept
            return (DatasetReleased(job_id=command.job_id),) if kept else ()
        case RecordPrepared():
            return _record_preparation(datasets, command, ctx.key)
        case EraseUnnamed():
            return _discard_unnamed(datasets, command, ctx.key)
        case EraseFiles():
            return erase_files(datasets)
        case Tick():
            return _expire(datasets, ctx)
        case _:
            assert_never(command)


def work_id(
    tenant: str,
    sources: tuple[Sha256, ...],
    spec: PrepareSpec,
    mixture: tuple[MixedFile, ...] = (),
) -> str:
    """Return the id that equal preparations share, derived from what their bytes depend on.

    Work of one tenant runs once as long as its result is kept.
    sources: hashes of all files, those of the mixture last
    """
    parts = (
        spec.base_sha256,
        str(spec.max_length),
        spec.length_policy,
        str(spec.validation_fraction_ppm),
        str(spec.seed),
        *(() if spec.rows == "answers" else (spec.rows,)),  # there were no others once
        *(() if spec.reasoning == "keep" else (f"reasoning:{spec.reasoning}",)),
        *(() if spec.chat is None else (f"chat:{spec.chat.sha256}",)),
        *(f"weight:{mixed.weight_ppm}" for mixed in mixture),
    )
    return derived_id(tenant, *sources, *parts)


def _register(datasets: TenantDatasets, command: RegisterFile, ctx: Context) -> tuple[Event, ...]:
    if command.file_id in datasets.files:
        exists = refusing("file_exists", file_id=command.file_id)
        return reject(errors.ALREADY_EXISTS, exists, "file")
    rejected = (
        check_file(datasets, command.quota)
        or check_bytes(datasets, command.quota, command.content.bytes)
        or check_name(datasets, command.terms.dataset)
    )
    if rejected is not None:
        return (rejected,)
    return (
        build_from(
            FileRegistered,
            command,
            expires_at=expires_at(ctx.at, command.terms.expires_after_ms),
            version=next_version(datasets, command.terms.dataset),
        ),
    )


def _expire(datasets: TenantDatasets, ctx: Context) -> tuple[Event, ...]:
    """End expired uploads and delete expired files, each as if by its own command."""
    events: list[Event] = []
    for name in due(datasets, ctx.at):
        if name in datasets.uploads:
            event: Event = end_upload(datasets.uploads[name], name, "expired")
        else:
            event = _deleted(datasets, name, ctx.key)
        events.append(event)
        datasets = evolve_tenant(datasets, event)
    return tuple(events)


def _delete(datasets: TenantDatasets, command: DeleteFile, tenant: str) -> tuple[Event, ...]:
    if command.file_id not in datasets.files:
        missing = refusing("file_missing", file_id=command.file_id)
        return reject(errors.NOT_FOUND, missing, "file_id")
    users = sorted(job for job, pin in datasets.pins.items() if command.file_id in pin.terms.files)
    if users:
        used = refusing("file_used_by_jobs", file_id=command.file_id, jobs=", ".join(users))
        return reject(errors.FILE_IN_USE, used, "file_id")
    models = sorted(
        hold.model_id for hold in datasets.kept.values() if command.file_id in hold.files
    )
    if models:
        used = refusing(
            "file_used_by_models",
            file_id=command.file_id,
            models=", ".join(models[:MODELS_NAMED_MAX]),
            others=max(0, len(models) - MODELS_NAMED_MAX),
            model=models[0],
        )
        return reject(errors.FILE_IN_USE, used, "file_id")
    return (_deleted(datasets, command.file_id, tenant),)


def _deleted(datasets: TenantDatasets, file_id: str, tenant: str) -> FileDeleted:
    """Delete a file and its folders, with what running work has stored there."""
    file, orphans = datasets.files[file_id], orphaned_preparations(datasets, file_id)
    return FileDeleted(
        file_id=file_id,
        blob=file.blob,
        report_blob=file.report_blob,
        erase=(
            file.blob,
            report_folder(tenant, file_id),
            *(prepared_folder(tenant, name) for name in orphans),
        ),
        cancelled=tuple(name for name in orphans if datasets.preparations[name].prepared is None),
    )


def _record_validation(
    datasets: TenantDatasets, command: RecordValidation, ctx: Context
) -> tuple[Event, ...]:
    file = datasets.files.get(command.file_id)
    if file is None and command.validation is not None:
        return (WorkDiscarded(erase=(report_folder(ctx.key, command.file_id),)),)
    if file is None or file.status != "pending":
        return ()
    waiting = [(job, pin) for job, pin in _pins(datasets) if command.file_id in pin.terms.files]
    if command.validation is None:
        unchecked = Failure(code=errors.FILE_REJECTED, reason=failing("file_unchecked"))
        failure = command.failure or unchecked
        unreadable = FileUnreadable(file_id=command.file_id, failure=failure)
        return (unreadable, *_refuse(waiting, command.file_id))
    validated = FileValidated(file_id=command.file_id, validation=command.validation)
    if not command.validation.accepted:
        return (validated, *_refuse(waiting, command.file_id))
    now = datasets.files.set(command.file_id, replace(file, status="accepted"))
    due: dict[str, PreparationDue] = {}
    ready: list[DatasetReady] = []
    for job, pin in waiting:
        if not _all_accepted(now, pin):
            continue
        preparation = _preparation_of(datasets, pin)
        if preparation is None:
            due.setdefault(pin.prepare_id, _due(datasets, pin, ctx))
        elif preparation.prepared is not None:
            ready.append(DatasetReady(job_id=job, prepared=preparation.prepared))
    return (validated, *due.values(), *ready)


def _pin(datasets: TenantDatasets, command: PinDataset, ctx: Context) -> tuple[Event, ...]:
    if command.job_id in datasets.pins:
        return ()
    terms = command.terms
    for name in terms.files:
        file = datasets.files.get(name)
        if file is None or file.status == "rejected":
            return (_refusal(command.job_id, name, missing=file is None),)
    sources = source_hashes(datasets, terms)
    pin = Pin(terms=terms, prepare_id=work_id(ctx.key, sources, terms.spec, terms.mixture))
    pinned = DatasetPinned(job_id=command.job_id, terms=terms, prepare_id=pin.prepare_id)
    if not _all_accepted(datasets.files, pin):  # even where another file has the same content
        return (pinned,)
    preparation = _preparation_of(datasets, pin)
    if preparation is None:
        return (pinned, _due(datasets, pin, ctx))
    if preparation.prepared is None:
        return (pinned,)
    return (pinned, DatasetReady(job_id=command.job_id, prepared=preparation.prepared))


def _keep(datasets: TenantDatasets, command: KeepDataset) -> tuple[Event, ...]:
    pin = datasets.pins.get(command.job_id)
    if pin is None or command.job_id in datasets.kept:
        return ()
    return (
        DatasetKept(
            job_id=command.job_id,
            model_id=command.model_id,
            training_file=pin.terms.training_file,
            validation_file=pin.terms.validation_file,
            mixture=tuple(mixed.file_id for mixed in pin.terms.mixture),
        ),
    )


def _record_preparation(
    datasets: TenantDatasets, command: RecordPrepared, tenant: str
) -> tuple[Event, ...]:
    preparation = datasets.preparations.get(command.prepare_id)
    if preparation is None and command.prepared is not None:
        return (WorkDiscarded(erase=(prepared_folder(tenant, command.prepare_id),)),)
    if preparation is None or preparation.prepared is not None:
        return ()
    waiting = [
        job
        for job, pin in _pins(datasets)
        if pin.prepare_id == preparation.work and _all_accepted(datasets.files, pin)
    ]
    if command.prepared is None:
        unprepared = Failure(code=errors.BAD_DATA, reason=failing("preparation_failed"))
        failure = command.failure or unprepared
        refused = (PinRefused(job_id=job, failure=failure) for job in waiting)
        return (PreparationFailed(prepare_id=command.prepare_id, failure=failure), *refused)
    done = DatasetPrepared(prepare_id=command.prepare_id, prepared=command.prepared)
    return (done, *(DatasetReady(job_id=job, prepared=command.prepared) for job in waiting))


def _discard_unnamed(
    datasets: TenantDatasets, command: EraseUnnamed, tenant: str
) -> tuple[Event, ...]:
    """Let go of what is still unnamed: a file may have been registered since the inventory."""
    root, needed = f"t/{tenant}/", needed_blobs(datasets, tenant)
    blobs = tuple(blob for blob in command.blobs if blob.startswith(root) and blob not in needed)
    return (UnnamedDiscarded(blobs=blobs, before=command.before),) if blobs else ()


def _pins(datasets: TenantDatasets) -> list[tuple[str, Pin]]:
    """The pins in order of job id, since the order of a persistent map differs by process."""
    return sorted(datasets.pins.items(), key=lambda item: item[0])


def _all_accepted(files: Mapping[str, FileState], pin: Pin) -> bool:
    return all(files[name].status == "accepted" for name in pin.terms.files)


def _preparation_of(datasets: TenantDatasets, pin: Pin) -> Preparation | None:
    """The preparation that a pin waits for, under way or done."""
    return datasets.preparations.get(datasets.prepared_by.get(pin.prepare_id, ""))


def _due(datasets: TenantDatasets, pin: Pin, ctx: Context) -> PreparationDue:
    """A preparation with its own id: its folder is erased when it fails or its files go, and
    the same work may be under way again by then.
    """
    terms = pin.terms
    training = datasets.files[terms.training_file]
    validation = None if terms.validation_file is None else datasets.files[terms.validation_file]
    return PreparationDue(
        prepare_id=derived_id(pin.prepare_id, ctx.command_id),
        training_blob=training.blob,
        training_sha256=training.sha256,
        validation_blob=None if validation is None else validation.blob,
        validation_sha256=None if validation is None else validation.sha256,
        spec=terms.spec,
        mixture=tuple(
            MixedBlob(blob=file.blob, sha256=file.sha256, weight_ppm=mixed.weight_ppm)
            for mixed in terms.mixture
            if (file := datasets.files.get(mixed.file_id)) is not None
        ),
        work=pin.prepare_id,
    )


def _refuse(waiting: list[tuple[str, Pin]], file_id: str) -> tuple[PinRefused, ...]:
    return tuple(_refusal(job, file_id, missing=False) for job, _ in waiting)


def _refusal(job_id: str, file_id: str, *, missing: bool) -> PinRefused:
    if missing:
        failure = Failure(code=errors.NOT_FOUND, reason=failing("file_gone", file_id=file_id))
    else:
        unaccepted = failing("file_unaccepted", file_id=file_id)
        failure = Failure(code=errors.FILE_REJECTED, reason=unaccepted)
    return PinRefused(job_id=job_id, failure=failure)
