"""Fold of the `model` journal: total for any order of events."""

from typing import TypeAlias, assert_never

from immutables import Map
from msgspec.structs import replace

from schemas.deployments import Deployed, TrafficCounted
from schemas.envelope import Context, Rejected, Repeated
from schemas.erasure import ModelsErased
from schemas.gate import (
    BenchmarkAdded,
    BenchmarkRemoved,
    GatePolicySet,
    QuarantineDecision,
    QuarantineSet,
)
from schemas.lifetime import VersionErased, VersionKept, VersionReleased
from schemas.model import (
    ApprovalRuleSet,
    BaseAdded,
    BaseDrifted,
    BasePinned,
    BaseRefused,
    BaseRestored,
    CheckpointShared,
    CheckpointUnshared,
    Event,
    StageMoved,
    VersionApproved,
    VersionDeleted,
    VersionFailed,
    VersionGated,
    VersionPublished,
    VersionRestored,
    VersionSubmitted,
)
from services.registry.domain.deployments import end_deployments, evolve_deployment
from services.registry.domain.erasure import evolve_erasure
from services.registry.domain.state import (
    EXCLUSIVE,
    FORMER_MAX,
    CheckpointPermission,
    DeletedVersion,
    ModelVersion,
    Registry,
    StageHolder,
    TenantModels,
    holder_key,
    holder_of,
)


def evolve(state: Registry, event: Event, ctx: Context) -> Registry:
    """The state after one more event."""
    match event:
        case Rejected() | Repeated() | BasePinned() | BaseRefused():
            return state
        case BaseAdded():
            bases = state.bases.set(event.base.base_id, event.base)
            return replace(state, bases=bases, drifted=_without(state, event.base.base_id))
        case BenchmarkAdded():
            added = event.benchmark
            return replace(state, benchmarks=state.benchmarks.set(added.name, added))
        case BenchmarkRemoved():
            return replace(state, benchmarks=state.benchmarks.delete(event.name))
        case BaseDrifted():
            return replace(state, drifted=state.drifted.set(event.base_id, event.sha256))
        case BaseRestored():
            return replace(state, drifted=_without(state, event.base_id))
        case _:
            models = state.tenants.get(ctx.key, TenantModels())
            changed = _evolve_tenant(models, event)
            if changed is models:
                return state
            return replace(state, tenants=state.tenants.set(ctx.key, changed))


PermissionEvent: TypeAlias = CheckpointShared | CheckpointUnshared
LifetimeEvent: TypeAlias = (
    VersionDeleted | VersionErased | VersionRestored | VersionKept | VersionReleased
)
VersionEvent: TypeAlias = (
    VersionSubmitted
    | VersionPublished
    | VersionFailed
    | StageMoved
    | LifetimeEvent
    | QuarantineSet
    | VersionApproved
    | VersionGated
)


def _without(state: Registry, base_id: str) -> Map[str, str]:
    """Base models whose files have changed, less one."""
    return state.drifted.delete(base_id) if base_id in state.drifted else state.drifted


def _evolve_tenant(
    models: TenantModels,
    event: PermissionEvent
    | VersionEvent
    | ApprovalRuleSet
    | GatePolicySet
    | Deployed
    | TrafficCounted
    | ModelsErased,
) -> TenantModels:
    if isinstance(event, Deployed | TrafficCounted):
        return evolve_deployment(models, event)
    if isinstance(event, ModelsErased):
        return evolve_erasure(models, event)
    if isinstance(event, ApprovalRuleSet):
        return replace(models, rules=models.rules.set(event.rule.stage, event.rule))
    if isinstance(event, GatePolicySet):
        if event.policy is not None:
            return replace(models, policies=models.policies.set(event.base_id, event.policy))
        if event.base_id not in models.policies:
            return models
        return replace(models, policies=models.policies.delete(event.base_id))
    if isinstance(event, PermissionEvent):
        return _evolve_permission(models, event)
    return _evolve_version(models, event)


def _evolve_version(models: TenantModels, event: VersionEvent) -> TenantModels:
    if isinstance(event, VersionSubmitted):
        return _set_version(models, event.terms.model_id, ModelVersion(terms=event.terms))
    if isinstance(event, VersionPublished):
        published = ModelVersion(
            terms=event.terms, published=True, quarantined=event.quarantined, files=event.files
        )
        return _set_version(models, event.terms.model_id, published)
    if isinstance(event, QuarantineSet):
        return _evolve_quarantine(models, event.decision)
    if isinstance(event, LifetimeEvent):
        return _evolve_lifetime(models, event)
    known = models.versions.get(event.model_id)
    match event:
        case VersionFailed():
            # a refusal of a second job with the same id must not touch the first job's version
            if known is None or known.terms.lineage.job_id != event.job_id:
                return models
            return replace(models, versions=models.versions.delete(event.model_id))
        case StageMoved():
            return models if known is None else _move_stage(models, known, event)
        case VersionApproved():
            if known is None:
                return models
            approvals = (*known.approvals, event.approval)
            return _set_version(models, event.model_id, replace(known, approvals=approvals))
        case VersionGated():
            if known is None:
                return models
            gated = replace(known, quarantined=event.quarantined, run=event.run)
            return _set_version(models, event.model_id, gated)
        case _:
            assert_never(event)


def _evolve_lifetime(models: TenantModels, event: LifetimeEvent) -> TenantModels:
    match event:
        case VersionDeleted():
            return _delete(models, event)
        case VersionErased():
            if event.model_id not in models.deleted:
                return models
            return replace(models, deleted=models.deleted.delete(event.model_id))
        case VersionRestored():
            model_id = event.terms.model_id
            deleted = models.deleted.get(model_id)
            if deleted is None:
                return models
            restored = _set_version(models, model_id, deleted.version)
            return replace(restored, deleted=models.deleted.delete(model_id))
        case VersionKept():
            return replace(models, kept=models.kept.set(event.job_id, event.model_id))
        case VersionReleased():
            if event.job_id not in models.kept:
                return models
            return replace(models, kept=models.kept.delete(event.job_id))
        case _:
            assert_never(event)


def _delete(models: TenantModels, event: VersionDeleted) -> TenantModels:
    known = models.versions.get(event.model_id)
    if known is None:
        return models
    models = replace(models, versions=models.versions.delete(event.model_id))
    if event.erase_at is None:
        return models
    deleted = DeletedVersion(version=known, erase_at=event.erase_at)
    return replace(models, deleted=models.deleted.set(event.model_id, deleted))


def _evolve_permission(models: TenantModels, event: PermissionEvent) -> TenantModels:
    known = models.shared
    match event:
        case CheckpointShared():
            permission = CheckpointPermission(checkpoint_id=event.checkpoint_id, share=event.share)
            return replace(models, shared=known.set(event.share.permission_id, permission))
        case CheckpointUnshared():
            if event.share.permission_id not in known:
                return models
            return replace(models, shared=known.delete(event.share.permission_id))
        case _:
            assert_never(event)


def _evolve_quarantine(models: TenantModels, decision: QuarantineDecision) -> TenantModels:
    known = models.versions.get(decision.model_id)
    if known is None:
        return models
    decided = replace(known, quarantined=decision.quarantined, held_back=decision.quarantined)
    return _set_version(models, decision.model_id, decided)


def _set_version(models: TenantModels, model_id: str, version: ModelVersion) -> TenantModels:
    return replace(models, versions=models.versions.set(model_id, version))


def _move_stage(models: TenantModels, version: ModelVersion, event: StageMoved) -> TenantModels:
    """The version leaves the stage it held; the former holder of the new stage goes back to dev."""
    models = replace(models, deployments=end_deployments(models, event))
    if version.stage in EXCLUSIVE:
        key = holder_key(version.terms.series, version.stage)
        left = holder_of(models, version.terms.series, version.stage)
        vacant = StageHolder(model_id=None, former=(*left.former, event.model_id)[-FORMER_MAX:])
        models = replace(models, holders=models.holders.set(key, vacant))
    if event.stage in EXCLUSIVE:
        models = _hold_stage(models, event)
    return _set_version(models, event.model_id, replace(version, stage=event.stage))


def _hold_stage(models: TenantModels, event: StageMoved) -> TenantModels:
    key = holder_key(event.series, event.stage)
    former = holder_of(models, event.series, event.stage).former
    replaced = None if event.replaced is None else models.versions.get(event.replaced)
    if event.by == "rollback" and event.model_id in former:
        # back to where it was: what came after it is no former holder of it
        former = former[: len(former) - 1 - former[::-1].index(event.model_id)]
    elif event.by == "promotion" and event.replaced is not None:
        former = (*former, event.replaced)[-FORMER_MAX:]
    if event.replaced is not None and replaced is not None:
        models = _set_version(models, event.replaced, replace(replaced, stage="dev"))
    held = StageHolder(model_id=event.model_id, former=former)
    return replace(models, holders=models.holders.set(key, held))
