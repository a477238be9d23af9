"""Erasure of a tenant: all its versions go, with what they had."""

from typing import Final

from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.deployments import Deploy
from schemas.envelope import Context, Rejected
from schemas.erasure import EraseModels, ModelsErased
from schemas.gate import SetGatePolicy, SetQuarantine
from schemas.lifetime import RestoreVersion
from schemas.model import (
    ApproveVersion,
    Command,
    DeleteVersion,
    Event,
    Promote,
    RollBack,
    SetApprovalRule,
    ShareCheckpoint,
)
from schemas.reasons import refusing
from services.registry.domain.state import TenantModels

MODELS_OF_EVENT_MAX: Final = 2_000  # whose names take at most 500 kB
REQUESTS: Final = (
    *(ApproveVersion, DeleteVersion, Deploy, Promote, RestoreVersion, RollBack),
    *(SetApprovalRule, SetGatePolicy, SetQuarantine, ShareCheckpoint),
)


def erase_models(models: TenantModels) -> tuple[ModelsErased]:
    """All versions, also those that could be restored, at most MODELS_OF_EVENT_MAX at a time."""
    names = sorted((*models.versions, *models.deleted))
    more = len(names) > MODELS_OF_EVENT_MAX
    return (ModelsErased(models=tuple(names[:MODELS_OF_EVENT_MAX]), more=more),)


def is_late(models: TenantModels, command: Command) -> bool:
    """Return whether a command other than the erasure arrives after the erasure began."""
    return models.erased and not (
        isinstance(command, EraseModels) and (models.versions or models.deleted)
    )


def refuse_late(command: Command, ctx: Context) -> tuple[Event, ...]:
    """Requests are rejected; facts of other streams, and pins of bases, change nothing any more."""
    if not isinstance(command, REQUESTS):
        return ()
    return (Rejected(code=errors.ILLEGAL_STATE, reason=refusing("tenant_erased", tenant=ctx.key)),)


def evolve_erasure(models: TenantModels, event: ModelsErased) -> TenantModels:
    """Forget the tenant, but for its erasure and versions of further events."""
    if not event.more:
        return TenantModels(erased=True)
    gone = frozenset(event.models)
    versions = {name: version for name, version in models.versions.items() if name not in gone}
    deleted = {name: version for name, version in models.deleted.items() if name not in gone}
    return replace(TenantModels(erased=True), versions=Map(versions), deleted=Map(deleted))
