"""`model` → bases, models and the stages they hold."""

from typing import Any, Final, assert_never

from schemas.deployments import Deployed, TrafficCounted
from schemas.envelope import Header, Rejected, Repeated
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
    Stage,
    StageMoved,
    VersionApproved,
    VersionDeleted,
    VersionFailed,
    VersionGated,
    VersionPublished,
    VersionRestored,
    VersionSubmitted,
)
from services.gateway.views.tables.deployments import DEPLOYMENTS, deployment_key
from services.gateway.views.tables.models import (
    APPROVAL_RULES,
    BASES,
    BENCHMARKS,
    MODEL_CHANGES,
    MODELS,
    PERMISSIONS,
    POLICIES,
    ApprovalRuleRow,
    BaseRow,
    BenchmarkRow,
    ModelChange,
    ModelChangeRow,
    ModelRow,
    PermissionRow,
    PolicyRow,
)
from tunery.runtime.verbs import Change

# Every partition has its own event with its own time, and their order is not defined: a row that a
# rebuild makes again comes from one of them.
_OF_EVERY_PARTITION: Final = (
    BaseAdded,
    BaseDrifted,
    BaseRestored,
    BenchmarkAdded,
    BenchmarkRemoved,
)
BASES_PARTITION: Final = 0


def project_model(header: Header, event: Event) -> tuple[Change, ...]:
    """Rows of base models, versions and permissions that follow from one event of `model`."""
    if isinstance(event, _OF_EVERY_PARTITION) and header.partition != BASES_PARTITION:
        return ()
    match event:
        case BaseAdded():
            row = BaseRow(id=event.base.base_id, created_at=header.at, base=event.base)
            return (BASES.insert(row), BASES.update({"id": row.id}, drifted_sha256=None))
        case BaseDrifted() | BaseRestored():
            now = event.sha256 if isinstance(event, BaseDrifted) else None
            return (BASES.update({"id": event.base_id}, drifted_sha256=now),)
        case BenchmarkAdded():
            added = event.benchmark
            return (
                BENCHMARKS.insert(
                    BenchmarkRow(id=added.name, created_at=header.at, benchmark=added)
                ),
            )
        case BenchmarkRemoved():
            return (BENCHMARKS.delete({"id": event.name}),)
        case VersionPublished():
            first = _change(header, event.terms.model_id, "published", "dev")
            return (_published(header, event), first)
        case QuarantineSet():
            return (_quarantined(header, event.decision),)
        case GatePolicySet():
            return (_policy(header, event),)
        case VersionApproved():
            stage = event.approval.stage
            return (_change(header, event.model_id, "approval", stage),)
        case ApprovalRuleSet():
            rule = ApprovalRuleRow(tenant=header.key, id=event.rule.stage, rule=event.rule)
            return (APPROVAL_RULES.insert(rule),)
        case StageMoved():
            return _moved(header, event)
        case VersionGated():
            key = {"tenant": header.key, "id": event.model_id}
            gated = MODELS.update(key, run=event.run, quarantined=event.quarantined)
            return (gated, _change(header, event.model_id, "gate", event.stage))
        case VersionDeleted(erase_at=None) | VersionErased():
            return (MODELS.delete({"tenant": header.key, "id": event.model_id}),)
        case VersionDeleted() | VersionRestored():
            return _deleted(header, event)
        case CheckpointShared():
            return (_shared(header, event),)
        case CheckpointUnshared():
            return (PERMISSIONS.delete({"tenant": header.key, "id": event.share.permission_id}),)
        case (
            Deployed()
            | TrafficCounted()
            | ModelsErased()
            | VersionSubmitted()
            | VersionFailed()
            | VersionKept()
            | VersionReleased()
            | BasePinned()
            | BaseRefused()
            | Rejected()
            | Repeated()
        ):
            return ()
        case _:
            assert_never(event)


def _published(header: Header, event: VersionPublished) -> Change:
    return MODELS.insert(
        ModelRow.of(
            event,
            event.terms,
            tenant=header.key,
            id=event.terms.model_id,
            sequence=header.seq,
            created_at=header.at,
            stage="dev",
            stage_at=header.at,
            deleted=False,
        )
    )


def _deleted(header: Header, event: VersionDeleted | VersionRestored) -> tuple[Change, ...]:
    """The row stays, with all that it says, while the version can be restored."""
    if isinstance(event, VersionRestored):
        key = {"tenant": header.key, "id": event.terms.model_id}
        restored = _change(header, event.terms.model_id, "restored", event.stage)
        return (MODELS.update(key, deleted=False, erase_at=None), restored)
    key = {"tenant": header.key, "id": event.model_id}
    deleted = _change(header, event.model_id, "deleted", "dev")
    return (MODELS.update(key, deleted=True, erase_at=event.erase_at), deleted)


def _quarantined(header: Header, decision: QuarantineDecision) -> Change:
    return MODELS.update(
        {"tenant": header.key, "id": decision.model_id},
        quarantined=decision.quarantined,
        quarantine_cause=decision.cause,
        quarantine_by=decision.by,
        quarantine_at=header.at,
    )


def _policy(header: Header, event: GatePolicySet) -> Change:
    if event.policy is None:
        return POLICIES.delete({"tenant": header.key, "id": event.base_id})
    return POLICIES.insert(
        PolicyRow(tenant=header.key, id=event.base_id, created_at=header.at, policy=event.policy)
    )


def _change(header: Header, model_id: str, change: ModelChange, stage: Stage) -> Change:
    return MODEL_CHANGES.insert(
        ModelChangeRow(
            tenant=header.key,
            id=f"{header.seq}/{change}/{model_id}",
            sequence=header.seq,
            at=header.at,
            model_id=model_id,
            change=change,
            stage=stage,
            actor=header.actor,
        )
    )


def _shared(header: Header, event: CheckpointShared) -> Change:
    return PERMISSIONS.insert(
        PermissionRow(
            tenant=header.key,
            id=event.share.permission_id,
            sequence=header.seq,
            created_at=header.at,
            checkpoint_id=event.checkpoint_id,
            project_id=event.share.project_id,
        )
    )


def _moved(header: Header, event: StageMoved) -> tuple[Change, ...]:
    holder = {"tenant": header.key, "id": event.model_id}
    now = MODELS.update(holder, stage=event.stage, stage_at=header.at)
    change = _change(header, event.model_id, event.by, event.stage)
    if event.replaced is None or event.replaced == event.model_id:
        return (now, change)
    before = {"tenant": header.key, "id": event.replaced}
    replaced = MODELS.update(before, stage="dev", stage_at=header.at)
    return (replaced, now, _change(header, event.replaced, "replaced", "dev"), change)


def project_deployment(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows of deployments that follow from one event of `model`."""
    match event:
        case Deployed(deployment=deployment):
            row = deployment_key(deployment.series, deployment.stage)
            key = {"tenant": header.key, "id": row}
            begun = DEPLOYMENTS.update(key, since=header.at, deployment=deployment, traffic=None)
            return (begun,)
        case TrafficCounted():
            key = {"tenant": header.key, "id": deployment_key(event.series, event.stage)}
            return (DEPLOYMENTS.update(key, traffic=event.arms),)
        case StageMoved():
            # another version holds it: versions deployed with the former one answer no more
            key = {"tenant": header.key, "id": deployment_key(event.series, event.stage)}
            return (DEPLOYMENTS.delete(key),)
        case _:
            return ()
