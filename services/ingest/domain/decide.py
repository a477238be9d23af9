"""Decisions of `dataset`: one validation per file, one preparation per content and spec."""

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
    Event,
    FileDeleted,
    FileRegistered,
    FileUnreadable,
    FileValidated,
    KeepDataset,
    PinDataset,
    PinRefused,
    PreparationDue,
    PreparationFailed,
    PrepareSpec,
    RecordPrepared,
    RecordValidation,
    RegisterFile,
    ReleaseDataset,
    UnpinDataset,
)
from schemas.envelope import Context, Rejected, Sha256, Tick
from schemas.ids import derived_id
from services.ingest.domain.evolve import evolve_library
from services.ingest.domain.expiry import due, expires_at
from services.ingest.domain.state import (
    File,
    Libraries,
    Library,
    Pin,
    orphaned,
    sources_of,
)
from services.ingest.domain.uploads import decide_upload, ended
from services.ingest.domain.versions import next_version, no_room

MODELS_NAMED_MAX: Final = 5  # in a refusal


def decide(state: Libraries, command: Command, ctx: Context) -> tuple[Event, ...]:
    """Refusals are `Rejected` (clients) or `PinRefused` (jobs); late and repeated facts are ()."""
    library = state.get(ctx.key, Library())
    match command:
        case RegisterFile():
            return _register(library, command, ctx)
        case DeleteFile():
            return _delete(library, command)
        case CreateUpload() | AddPart() | CompleteUpload() | CancelUpload():
            return decide_upload(library, command, ctx)
        case RecordValidation():
            return _validated(library, command)
        case PinDataset():
            return _pin(library, command, ctx.key)
        case UnpinDataset():
            known = command.job_id in library.pins
            return (DatasetUnpinned(job_id=command.job_id),) if known else ()
        case KeepDataset():
            return _keep(library, command)
        case ReleaseDataset():
            kept = command.job_id in library.kept
            return (DatasetReleased(job_id=command.job_id),) if kept else ()
        case RecordPrepared():
            return _prepared(library, command)
        case Tick():
            return _expire(library, ctx)
        case _:
            assert_never(command)


def prepare_id(tenant: str, sources: tuple[Sha256, ...], spec: PrepareSpec) -> str:
    """Names the work by what its bytes depend on: equal work of one tenant is done once."""
    parts = (
        spec.base_sha256,
        str(spec.max_length),
        spec.length_policy,
        str(spec.validation_fraction_ppm),
        str(spec.seed),
    )
    return derived_id(tenant, *sources, *parts)


def _register(library: Library, command: RegisterFile, ctx: Context) -> tuple[Event, ...]:
    if command.file_id in library.files:
        return _reject(errors.ALREADY_EXISTS, f"File {command.file_id!r} exists already.", "file")
    if (full := no_room(library, command.dataset)) is not None:
        return (full,)
    return (
        FileRegistered(
            file_id=command.file_id,
            purpose=command.purpose,
            name=command.name,
            bytes=command.bytes,
            sha256=command.sha256,
            blob=command.blob,
            expires_at=expires_at(ctx.at, command.expires_after_ms),
            job_id=command.job_id,
            dataset=command.dataset,
            version=next_version(library, command.dataset),
            rows_max=command.rows_max,
        ),
    )


def _expire(library: Library, ctx: Context) -> tuple[Event, ...]:
    """What is due goes, each as if by its own command."""
    events: list[Event] = []
    for name in due(library, ctx.at):
        if name in library.uploads:
            gone: Event = ended(library.uploads[name], name, "expired")
        else:
            gone = _deleted(library, name, library.files[name])
        events.append(gone)
        library = evolve_library(library, gone)
    return tuple(events)


def _delete(library: Library, command: DeleteFile) -> tuple[Event, ...]:
    file = library.files.get(command.file_id)
    if file is None:
        return _reject(errors.NOT_FOUND, f"No such File object: {command.file_id}", "file_id")
    users = sorted(job for job, pin in library.pins.items() if command.file_id in pin.files)
    if users:
        message = (
            f"File {command.file_id} is in use by {', '.join(users)}. "
            "Cancel the job, or wait until it has ended."
        )
        return _reject(errors.FILE_IN_USE, message, "file_id")
    models = sorted(it.model_id for it in library.kept.values() if command.file_id in it.files)
    if models:
        more = " and others" if len(models) > MODELS_NAMED_MAX else ""
        message = (
            f"File {command.file_id} is in the lineage of {', '.join(models[:MODELS_NAMED_MAX])}"
            f"{more}. Delete what was made of it first: DELETE /v1/models/{models[0]}"
        )
        return _reject(errors.FILE_IN_USE, message, "file_id")
    return (_deleted(library, command.file_id, file),)


def _deleted(library: Library, file_id: str, file: File) -> FileDeleted:
    return FileDeleted(
        file_id=file_id,
        blob=file.blob,
        report_blob=file.report_blob,
        erase=_erasable(library, file_id, file),
        cancelled=tuple(
            name
            for name in orphaned(library, file_id)
            if library.preparations[name].prepared is None
        ),
    )


def _erasable(library: Library, file_id: str, file: File) -> tuple[str, ...]:
    """Keys are content-named, so another file, or another cache, may need the same bytes."""
    others = [other for name, other in library.files.items() if name != file_id]
    gone = set(orphaned(library, file_id))
    kept = {key for other in others for key in (other.blob, other.report_blob)}
    erase: set[str | None] = {file.blob, file.report_blob}
    for name, made in library.preparations.items():
        if made.prepared is not None:
            keys = (
                made.prepared.train_blob,
                made.prepared.validation_blob,
                made.prepared.prompts_blob,
            )
            (erase if name in gone else kept).update(keys)
    return tuple(sorted(key for key in erase - kept if key is not None))


def _validated(library: Library, command: RecordValidation) -> tuple[Event, ...]:
    file = library.files.get(command.file_id)
    if file is None or file.status != "pending":
        return ()
    waiting = [(job, pin) for job, pin in _pins(library) if command.file_id in pin.files]
    if command.validation is None:
        failure = command.failure or "The file could not be read."
        unreadable = FileUnreadable(file_id=command.file_id, failure=failure)
        return (unreadable, *_refuse(waiting, command.file_id))
    validated = FileValidated(file_id=command.file_id, validation=command.validation)
    if not command.validation.accepted:
        return (validated, *_refuse(waiting, command.file_id))
    now = library.files.set(command.file_id, replace(file, status="accepted"))
    due: dict[str, PreparationDue] = {}
    for _, pin in waiting:
        if pin.prepare_id not in library.preparations and _all_accepted(now, pin):
            due.setdefault(pin.prepare_id, _due(library, pin))
    return (validated, *due.values())


def _pin(library: Library, command: PinDataset, tenant: str) -> tuple[Event, ...]:
    if command.job_id in library.pins:
        return ()
    wanted = Pin(
        training_file=command.training_file,
        validation_file=command.validation_file,
        prepare_id="",
        spec=command.spec,
    )
    for name in wanted.files:
        file = library.files.get(name)
        if file is None or file.status == "rejected":
            return (_refusal(command.job_id, name, missing=file is None),)
    sources = sources_of(library, wanted)
    pinned = DatasetPinned(
        job_id=command.job_id,
        training_file=command.training_file,
        validation_file=command.validation_file,
        prepare_id=prepare_id(tenant, sources, command.spec),
        spec=command.spec,
    )
    made = library.preparations.get(pinned.prepare_id)
    if made is not None:
        if made.prepared is None:
            return (pinned,)
        return (pinned, DatasetReady(job_id=command.job_id, prepared=made.prepared))
    if not _all_accepted(library.files, wanted):
        return (pinned,)
    return (pinned, _due(library, replace(wanted, prepare_id=pinned.prepare_id)))


def _keep(library: Library, command: KeepDataset) -> tuple[Event, ...]:
    pin = library.pins.get(command.job_id)
    if pin is None or command.job_id in library.kept:
        return ()
    return (
        DatasetKept(
            job_id=command.job_id,
            model_id=command.model_id,
            training_file=pin.training_file,
            validation_file=pin.validation_file,
        ),
    )


def _prepared(library: Library, command: RecordPrepared) -> tuple[Event, ...]:
    made = library.preparations.get(command.prepare_id)
    if made is None or made.prepared is not None:
        return ()
    waiting = [job for job, pin in _pins(library) if pin.prepare_id == command.prepare_id]
    if command.prepared is None:
        failure = command.failure or "The data set could not be prepared."
        code = command.code or errors.BAD_DATA
        refused = (PinRefused(job_id=job, code=code, message=failure) for job in waiting)
        return (PreparationFailed(prepare_id=command.prepare_id, failure=failure), *refused)
    done = DatasetPrepared(prepare_id=command.prepare_id, prepared=command.prepared)
    return (done, *(DatasetReady(job_id=job, prepared=command.prepared) for job in waiting))


def _pins(library: Library) -> list[tuple[str, Pin]]:
    """In order of job id: the order of a persistent map differs between processes."""
    return sorted(library.pins.items(), key=lambda item: item[0])


def _all_accepted(files: Mapping[str, File], pin: Pin) -> bool:
    return all(files[name].status == "accepted" for name in pin.files)


def _due(library: Library, pin: Pin) -> PreparationDue:
    training = library.files[pin.training_file]
    validation = None if pin.validation_file is None else library.files[pin.validation_file]
    return PreparationDue(
        prepare_id=pin.prepare_id,
        training_blob=training.blob,
        training_sha256=training.sha256,
        validation_blob=None if validation is None else validation.blob,
        validation_sha256=None if validation is None else validation.sha256,
        spec=pin.spec,
    )


def _refuse(waiting: list[tuple[str, Pin]], file_id: str) -> tuple[PinRefused, ...]:
    return tuple(_refusal(job, file_id, missing=False) for job, _ in waiting)


def _refusal(job_id: str, file_id: str, *, missing: bool) -> PinRefused:
    if missing:
        message = f"File {file_id} does not exist any more."
        return PinRefused(job_id=job_id, code=errors.NOT_FOUND, message=message)
    message = (
        f"File {file_id} was rejected. GET /v1/files/{file_id}/validation lists every problem."
    )
    return PinRefused(job_id=job_id, code=errors.FILE_REJECTED, message=message)


def _reject(code: str, message: str, param: str | None = None) -> tuple[Rejected, ...]:
    return (Rejected(code=code, message=message, param=param),)
