"""Decisions of `model`: which base a job may pin, which version may hold a stage."""

from typing import assert_never

from schemas import errors
from schemas.envelope import Context, Rejected
from schemas.model import (
    GLOBAL,
    AddBase,
    BaseAdded,
    BasePinned,
    BaseRefused,
    CheckpointShared,
    CheckpointUnshared,
    Command,
    DeleteVersion,
    Event,
    PinBase,
    Promote,
    RecordPublished,
    RegisterVersion,
    RollBack,
    ShareCheckpoint,
    Stage,
    StageMoved,
    UnshareCheckpoint,
    VersionDeleted,
    VersionFailed,
    VersionPublished,
    VersionSubmitted,
)
from services.registry.domain.state import (
    EXCLUSIVE,
    SHARED_MAX,
    VERSIONS_MAX,
    Registry,
    TenantModels,
    former_of,
    holder_of,
)


def decide(state: Registry, command: Command, ctx: Context) -> tuple[Event, ...]:
    """Events that follow from a command.

    Refusals are `Rejected` for requests, `BaseRefused` or `VersionFailed` for jobs.
    """
    models = state.tenants.get(ctx.key, TenantModels())
    match command:
        case AddBase():
            return _add_base(state, command, ctx)
        case PinBase():
            return (_pin_base(state, command),)
        case RegisterVersion():
            return _register(models, command)
        case RecordPublished():
            return _record_publication(models, command)
        case Promote():
            return _promote(models, command)
        case RollBack():
            return _roll_back(models, command)
        case DeleteVersion():
            return _delete(models, command)
        case ShareCheckpoint():
            return _share(models, command)
        case UnshareCheckpoint():
            return _unshare(models, command)
        case _:
            assert_never(command)


def _add_base(state: Registry, command: AddBase, ctx: Context) -> tuple[Event, ...]:
    """Bytes under one id never change; where nodes find them may."""
    if ctx.key != GLOBAL:
        return _reject(errors.MALFORMED, f"AddBase is global: its key must be {GLOBAL!r}.")
    base = command.base
    known = state.bases.get(base.base_id)
    if known == base:
        return ()
    if known is not None and known.sha256 != base.sha256:
        message = (
            f"Base model {base.base_id!r} is registered with SHA-256 {known.sha256}, "
            f"not {base.sha256}. Changed weights need a new id."
        )
        return _reject(errors.BASE_CHANGED, message, "id")
    return (BaseAdded(base=base),)


def _pin_base(state: Registry, command: PinBase) -> BasePinned | BaseRefused:
    base = state.bases.get(command.base_id)
    if base is None:
        message = f"The model '{command.base_id}' does not exist."
        return BaseRefused(job_id=command.job_id, code=errors.UNKNOWN_BASE, message=message)
    if base.sha256 != command.base_sha256:
        message = (
            f"Base model {command.base_id!r} has SHA-256 {base.sha256} now, "
            f"the job was submitted for {command.base_sha256}. Submit it again."
        )
        return BaseRefused(job_id=command.job_id, code=errors.BASE_CHANGED, message=message)
    return BasePinned(job_id=command.job_id, base=base)


def _register(models: TenantModels, command: RegisterVersion) -> tuple[Event, ...]:
    model_id, job_id = command.terms.model_id, command.terms.lineage.job_id
    known = models.versions.get(model_id)
    if known is not None:
        if known.terms.lineage.job_id == job_id:
            return ()
        failure = f"Model {model_id!r} exists already, from job {known.terms.lineage.job_id}."
        return (VersionFailed(model_id=model_id, job_id=job_id, failure=failure),)
    if len(models.versions) >= VERSIONS_MAX:
        failure = f"A tenant has at most {VERSIONS_MAX} model versions. Delete some first."
        return (VersionFailed(model_id=model_id, job_id=job_id, failure=failure),)
    return (VersionSubmitted(terms=command.terms, adapter=command.adapter),)


def _record_publication(models: TenantModels, command: RecordPublished) -> tuple[Event, ...]:
    """Record that a version is published, or that it failed; only the first report counts."""
    version = models.versions.get(command.model_id)
    if version is None or version.published:
        return ()
    if command.failure is not None or not command.files:
        failure = command.failure or "The adapter has no files."
        job_id = version.terms.lineage.job_id
        return (VersionFailed(model_id=command.model_id, job_id=job_id, failure=failure),)
    return (
        VersionPublished(
            terms=version.terms,
            files=command.files,
            quarantined=version.terms.lineage.verdict == "block",
        ),
    )


def _promote(models: TenantModels, command: Promote) -> tuple[Event, ...]:
    version = models.versions.get(command.model_id)
    if version is None:
        return _unknown(command.model_id)
    if not version.published:
        message = f"Model {command.model_id!r} is still being published. Try again shortly."
        return _reject(errors.ILLEGAL_STATE, message, "model")
    if version.quarantined and command.stage != "archived":
        message = (
            f"Model {command.model_id!r} is quarantined: the gate blocked it, because it answers "
            "worse than its base. It can be downloaded or archived, not promoted."
        )
        return _reject(errors.ILLEGAL_STATE, message, "model")
    exclusive = command.stage in EXCLUSIVE
    current = holder_of(models, version.terms.series, command.stage).model_id if exclusive else None
    if command.expected != current:
        return _conflict(command.stage, current, command.expected)
    if version.stage == command.stage:
        return ()
    return (
        StageMoved(
            model_id=command.model_id,
            series=version.terms.series,
            stage=command.stage,
            replaced=current,
            by="promotion",
        ),
    )


def _roll_back(models: TenantModels, command: RollBack) -> tuple[Event, ...]:
    if command.stage not in EXCLUSIVE:
        message = f"Only {' and '.join(EXCLUSIVE)} can be rolled back."
        return _reject(errors.ILLEGAL_STATE, message, "stage")
    current = holder_of(models, command.series, command.stage).model_id
    if current is None or current != command.expected:
        return _conflict(command.stage, current, command.expected)
    former = former_of(models, command.series, command.stage)
    if former is None:
        message = f"No former version of {command.stage} is left to roll back to."
        return _reject(errors.ILLEGAL_STATE, message, "stage")
    return (
        StageMoved(
            model_id=former,
            series=command.series,
            stage=command.stage,
            replaced=current,
            by="rollback",
        ),
    )


def _delete(models: TenantModels, command: DeleteVersion) -> tuple[Event, ...]:
    version = models.versions.get(command.model_id)
    if version is None:
        return _unknown(command.model_id)
    if not version.published:
        message = f"Model {command.model_id!r} is still being published. Try again shortly."
        return _reject(errors.ILLEGAL_STATE, message, "model")
    if version.stage in EXCLUSIVE:
        message = (
            f"Model {command.model_id!r} holds {version.stage}. "
            "Promote another version, or move this one to archived, first."
        )
        return _reject(errors.ILLEGAL_STATE, message, "model")
    job_id = version.terms.lineage.job_id
    return (VersionDeleted(model_id=command.model_id, files=version.files, job_id=job_id),)


def _conflict(stage: Stage, current: str | None, expected: str | None) -> tuple[Rejected, ...]:
    message = (
        f"{stage} is held by {current or 'no version'}, not by {expected or 'no version'}. "
        f"Read the stage again, and send expected={current or 'null'} to replace its holder."
    )
    return _reject(errors.STAGE_CONFLICT, message, "expected")


def _unknown(model_id: str) -> tuple[Rejected, ...]:
    return _reject(errors.NOT_FOUND, f"The model '{model_id}' does not exist.", "model")


def _share(models: TenantModels, command: ShareCheckpoint) -> tuple[Event, ...]:
    checkpoint = command.checkpoint_id
    permitted = {
        permission.share.project_id
        for permission in models.shared.values()
        if permission.checkpoint_id == checkpoint
    }
    new = {share.project_id: share for share in command.shares if share.project_id not in permitted}
    if len(models.shared) + len(new) > SHARED_MAX:
        message = f"A tenant gives at most {SHARED_MAX} permissions. Delete some first."
        return _reject(errors.ILLEGAL_STATE, message)
    return tuple(CheckpointShared(checkpoint_id=checkpoint, share=share) for share in new.values())


def _unshare(models: TenantModels, command: UnshareCheckpoint) -> tuple[Event, ...]:
    known = models.shared.get(command.permission_id)
    if known is None:
        message = f"The permission '{command.permission_id}' does not exist."
        return _reject(errors.NOT_FOUND, message, "permission_id")
    return (CheckpointUnshared(checkpoint_id=known.checkpoint_id, share=known.share),)


def _reject(code: str, message: str, param: str | None = None) -> tuple[Rejected, ...]:
    return (Rejected(code=code, message=message, param=param),)
