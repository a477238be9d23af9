"""Lifetime of a version: uses that keep it, its deletion, and the days in which it can return."""

from typing import Final, TypeAlias, assert_never

from schemas import errors
from schemas.envelope import Context, Reason, Rejected, Tick
from schemas.lifetime import (
    KeepVersion,
    ReleaseVersion,
    RestoreVersion,
    VersionErased,
    VersionKept,
    VersionReleased,
)
from schemas.model import BaseRefused, DeleteVersion, Event, VersionDeleted, VersionRestored
from schemas.reasons import Failure, failing, refusing
from schemas.units import DAY_MS, Ms
from services.registry.domain.deployments import refuse_deployed
from services.registry.domain.state import (
    DELETED_MAX,
    EXCLUSIVE,
    VERSIONS_MAX,
    DeletedVersion,
    ModelVersion,
    Registry,
    TenantModels,
    descendant_of,
)

GRACE_MS: Final[Ms] = 30 * DAY_MS
ERASED_MAX: Final = 100  # per tick; the rest is erased with the next one
LifetimeCommand: TypeAlias = DeleteVersion | RestoreVersion | KeepVersion | ReleaseVersion | Tick


def decide_lifetime(
    models: TenantModels, command: LifetimeCommand, ctx: Context
) -> tuple[Event, ...]:
    """Events that follow from a command about how long a version stays."""
    match command:
        case DeleteVersion():
            return _delete(models, command, ctx)
        case RestoreVersion():
            return _restore(models, command.model_id)
        case KeepVersion():
            return _keep(models, command)
        case ReleaseVersion():
            kept = models.kept.get(command.job_id)
            return () if kept is None else (VersionReleased(job_id=command.job_id, model_id=kept),)
        case Tick():
            return tuple(_erased(models.deleted[name]) for name in _due(models, ctx.at))
        case _:
            assert_never(command)


def next_erasure(state: Registry, tenant: str) -> Ms | None:
    """When the next version of a tenant is erased; None: none was deleted."""
    models = state.tenants.get(tenant)
    deleted = () if models is None else models.deleted.values()
    return min((version.erase_at for version in deleted), default=None)


def _delete(models: TenantModels, command: DeleteVersion, ctx: Context) -> tuple[Event, ...]:
    version = models.versions.get(command.model_id)
    if version is None:
        deleted = models.deleted.get(command.model_id)
        if deleted is not None and command.erase:
            return (_erased(deleted),)
        return _missing(command.model_id)
    if refused := _refuse_deletion(models, version):
        return refused
    if not command.erase and len(models.deleted) >= DELETED_MAX:
        return _reject(refusing("deleted_at_most", limit=DELETED_MAX))
    return (
        VersionDeleted(
            model_id=command.model_id,
            files=version.files,
            job_id=version.terms.lineage.job_id,
            erase_at=None if command.erase else ctx.at + GRACE_MS,
        ),
    )


def _refuse_deletion(models: TenantModels, version: ModelVersion) -> tuple[Rejected, ...]:
    """Why a version is not deleted: it is in use; empty: it may be."""
    model_id = version.terms.model_id
    if not version.published:
        return _reject(refusing("model_publishing", model_id=model_id))
    if version.stage in EXCLUSIVE:
        return _reject(refusing("model_in_stage", model_id=model_id, stage=version.stage))
    if refused := refuse_deployed(models, model_id):
        return refused
    if descendant := descendant_of(models, model_id):
        return _reject(refusing("model_referenced", model_id=model_id, descendant=descendant))
    jobs = sorted(job_id for job_id, kept in models.kept.items() if kept == model_id)
    if jobs:
        return _reject(refusing("model_kept", model_id=model_id, jobs=", ".join(jobs)))
    return ()


def _restore(models: TenantModels, model_id: str) -> tuple[Event, ...]:
    deleted = models.deleted.get(model_id)
    if deleted is None:
        return () if model_id in models.versions else _missing(model_id)
    version = deleted.version
    start_id = version.terms.lineage.start_id
    if start_id is not None and start_id in models.deleted:
        return _reject(refusing("model_start_deleted", model_id=model_id, start=start_id))
    if len(models.versions) >= VERSIONS_MAX:
        return _reject(refusing("models_at_most", limit=VERSIONS_MAX))
    return (VersionRestored(terms=version.terms, files=version.files, stage=version.stage),)


def _keep(models: TenantModels, command: KeepVersion) -> tuple[Event, ...]:
    """A job keeps its version; one whose version was deleted in the meantime cannot begin."""
    job_id, model_id = command.job_id, command.model_id
    if model_id in models.deleted:
        gone = Failure(code=errors.UNKNOWN_BASE, reason=failing("start_deleted", model_id=model_id))
        return (BaseRefused(job_id=job_id, failure=gone),)
    if model_id not in models.versions or job_id in models.kept:
        return ()
    return (VersionKept(job_id=job_id, model_id=model_id),)


def _due(models: TenantModels, at: Ms) -> list[str]:
    """Ids of the versions that are erased now, the oldest first."""
    due = ((deleted.erase_at, name) for name, deleted in models.deleted.items())
    return [name for when, name in sorted(due) if when <= at][:ERASED_MAX]


def _erased(deleted: DeletedVersion) -> VersionErased:
    terms = deleted.version.terms
    return VersionErased(
        model_id=terms.model_id, files=deleted.version.files, job_id=terms.lineage.job_id
    )


def _missing(model_id: str) -> tuple[Rejected, ...]:
    return _reject(refusing("model_missing", model_id=model_id), errors.NOT_FOUND)


def _reject(reason: Reason, code: str = errors.ILLEGAL_STATE) -> tuple[Rejected, ...]:
    return (Rejected(code=code, reason=reason, param="model"),)
