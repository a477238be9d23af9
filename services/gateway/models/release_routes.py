"""What stands before a promotion: approvals, and the bytes of the base model; and what happened."""

from typing import Final

from schemas.model import (
    Approval,
    ApprovalRule,
    ApproveVersion,
    RecordBaseBytes,
    SetApprovalRule,
)
from schemas.topics import MODEL
from services.gateway.models.bodies import ApprovalRequest, ApprovalRuleRequest
from services.gateway.models.responses import (
    ApprovalRuleResponse,
    BaseModelResponse,
    FineTunedModelResponse,
    ModelChangeResponse,
    change_response,
    model_response,
    rule_response,
)
from services.gateway.models.routes import decide_for_base, find_version, hash_now, unknown_base
from services.gateway.models.tables import APPROVAL_RULES, BASES, MODEL_CHANGES
from services.gateway.web.deps import Admin, Caller, WithDeps
from services.gateway.web.errors import invalid
from services.gateway.web.responses import Page, listing
from services.gateway.web.routing import new_router

CHANGES_MAX: Final = 1_000
RULES_MAX: Final = 2
router = new_router("models")


@router.post("/v1/models/{model_id:path}/approve")
async def approve_model(
    model_id: str, body: ApprovalRequest, deps: WithDeps, caller: Caller
) -> FineTunedModelResponse:
    """Agree that a version is promoted to a stage. The key of its author cannot."""
    row = await find_version(deps, caller, model_id)
    approval = Approval(stage=body.stage, key_id=caller.key_id)
    await deps.commands.decide(
        MODEL,
        caller.tenant,
        ApproveVersion(model_id=row.id, approval=approval),
        actor=deps.seal.seal(caller.tenant, caller.key_id, "actor"),
    )
    return model_response(row)


@router.get("/v1/models/{model_id:path}/history")
async def model_history(model_id: str, deps: WithDeps, caller: Caller) -> Page[ModelChangeResponse]:
    """What happened to a version, the oldest first: its stages and approvals, and who asked."""
    row = await find_version(deps, caller, model_id)
    where = {"tenant": caller.tenant, "model_id": row.id}
    rows = await deps.views.page(MODEL_CHANGES, where, limit=CHANGES_MAX, descending=False)
    changes = [change_response(change, deps.unseal(change.actor, "actor")) for change in rows]
    return listing(Page[ModelChangeResponse], changes, False)


@router.get("/v1/approval_rules")
async def list_approval_rules(deps: WithDeps, caller: Caller) -> Page[ApprovalRuleResponse]:
    """What promotions need, by stage. A stage without a rule needs no approvals."""
    where = {"tenant": caller.tenant}
    rows = await deps.views.page(APPROVAL_RULES, where, limit=RULES_MAX, descending=False)
    return listing(Page[ApprovalRuleResponse], [rule_response(row.rule) for row in rows], False)


@router.post("/v1/approval_rules")
async def set_approval_rule(
    body: ApprovalRuleRequest, deps: WithDeps, caller: Caller
) -> ApprovalRuleResponse:
    """Set what promotions to a stage need. It needs a key that may change keys."""
    rule = ApprovalRule(
        stage=body.stage, required=body.required, approvers=tuple(dict.fromkeys(body.approvers))
    )
    await deps.commands.decide(
        MODEL,
        caller.tenant,
        SetApprovalRule(rule=rule),
        actor=deps.seal.seal(caller.tenant, caller.key_id, "actor"),
    )
    return rule_response(rule)


@router.post("/v1/bases/{base_id:path}/check")
async def check_base(base_id: str, deps: WithDeps, admin: Admin) -> BaseModelResponse:
    """Hash the files of a base model where they lie. While they differ, its versions are stale."""
    row = await deps.views.first(BASES, {"id": base_id})
    if row is None:
        raise unknown_base(base_id)
    try:
        sha256 = await hash_now(row.base, None)
    except OSError as error:
        message = f"{row.base.path} cannot be read where the gateway runs: {error.strerror}"
        raise invalid(message, "id") from error
    command = RecordBaseBytes(base_id=base_id, sha256=sha256)
    return await decide_for_base(deps, admin, base_id, command)
