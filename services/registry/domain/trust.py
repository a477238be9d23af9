"""Decisions about approvals of versions, and about base models whose files have changed."""

from typing import assert_never

from schemas import errors
from schemas.envelope import Context, Reason, Rejected
from schemas.model import (
    ApprovalRuleSet,
    ApproveVersion,
    BaseDrifted,
    BaseRestored,
    Event,
    RecordBaseBytes,
    SetApprovalRule,
    Stage,
    VersionApproved,
)
from schemas.reasons import refusing
from schemas.streams import GLOBAL
from services.registry.domain.state import (
    APPROVALS_MAX,
    APPROVERS_MAX,
    EXCLUSIVE,
    ModelVersion,
    Registry,
    TenantModels,
    missing_approvals,
)


def decide_trust(
    state: Registry,
    models: TenantModels,
    command: SetApprovalRule | ApproveVersion | RecordBaseBytes,
    ctx: Context,
) -> tuple[Event, ...]:
    """Events that follow from a command about approvals or the files of a base model."""
    match command:
        case SetApprovalRule():
            return _set_rule(models, command)
        case ApproveVersion():
            return _approve(models, command)
        case RecordBaseBytes():
            return _record_bytes(state, command, ctx)
        case _:
            assert_never(command)


def refuse_stage(
    state: Registry, models: TenantModels, version: ModelVersion, stage: Stage
) -> tuple[Rejected, ...]:
    """Why a version may not be promoted to a stage; empty: it may."""
    if stage not in EXCLUSIVE:
        return ()
    if refused := refuse_stale(state, version):
        return refused
    missing = missing_approvals(models, version, stage)
    if not missing:
        return ()
    model_id = version.terms.model_id
    return _reject(refusing("approvals_missing", model_id=model_id, stage=stage, missing=missing))


def refuse_stale(state: Registry, version: ModelVersion) -> tuple[Rejected, ...]:
    """Why a version may hold no stage: the gate saw other files of its base model than now."""
    base_id = version.terms.lineage.base_id
    base = state.bases.get(base_id)
    if base is None or state.drifted.get(base_id, base.sha256) == version.base_sha256:
        return ()
    drifted = refusing("base_drifted", model_id=version.terms.model_id, base_id=base_id)
    return _reject(drifted, errors.BASE_CHANGED)


def _set_rule(models: TenantModels, command: SetApprovalRule) -> tuple[Event, ...]:
    rule = command.rule
    approvers = {*rule.approvers}
    if len(approvers) > APPROVERS_MAX or not 0 <= rule.required <= APPROVERS_MAX:
        return _reject(refusing("approvers_at_most", limit=APPROVERS_MAX), param="required")
    if approvers and rule.required > len(approvers):
        few = refusing("approvers_too_few", required=rule.required, approvers=len(approvers))
        return _reject(few, param="approvers")
    return () if models.rules.get(rule.stage) == rule else (ApprovalRuleSet(rule=rule),)


def _approve(models: TenantModels, command: ApproveVersion) -> tuple[Event, ...]:
    version, approval = models.versions.get(command.model_id), command.approval
    if version is None:
        unknown = refusing("model_missing", model_id=command.model_id)
        return _reject(unknown, errors.NOT_FOUND)
    if not version.published:
        return _reject(refusing("model_publishing", model_id=command.model_id))
    if version.quarantined:
        return _reject(refusing("model_quarantined", model_id=command.model_id))
    if approval.key_id == version.terms.author:
        return _reject(refusing("approval_own", model_id=command.model_id))
    rule = models.rules.get(approval.stage)
    if rule is not None and rule.approvers and approval.key_id not in rule.approvers:
        return _reject(refusing("approval_not_asked", stage=approval.stage))
    if approval in version.approvals:
        return ()
    if len(version.approvals) >= APPROVALS_MAX:
        return _reject(refusing("approvals_at_most", limit=APPROVALS_MAX))
    return (VersionApproved(model_id=command.model_id, approval=approval),)


def _record_bytes(state: Registry, command: RecordBaseBytes, ctx: Context) -> tuple[Event, ...]:
    if ctx.key != GLOBAL:
        return _reject(refusing("base_not_global"), errors.MALFORMED)
    base = state.bases.get(command.base_id)
    if base is None:
        unknown = refusing("model_missing", model_id=command.base_id)
        return _reject(unknown, errors.NOT_FOUND, "id")
    known = state.drifted.get(command.base_id)
    if command.sha256 == base.sha256:
        return () if known is None else (BaseRestored(base_id=command.base_id),)
    if command.sha256 == known:
        return ()
    return (BaseDrifted(base_id=command.base_id, sha256=command.sha256),)


def _reject(
    reason: Reason, code: str = errors.ILLEGAL_STATE, param: str = "model"
) -> tuple[Rejected, ...]:
    return (Rejected(code=code, reason=reason, param=param),)
