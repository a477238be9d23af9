"""What stands before a promotion: approvals, and the bytes of the base model; and what happened."""

from typing import Final

from schemas.model import Approval, ApprovalRule, ApproveVersion, RecordBaseBytes, SetApprovalRule
from schemas.topics import MODEL
from services.gateway.models.domain.bodies import ApprovalRequest, ApprovalRuleRequest
from services.gateway.models.domain.responses import (
    ApprovalRuleResponse,
    CheckedBaseResponse,
    FineTunedModelResponse,
    ModelChangeResponse,
    change_response,
    model_response,
    rule_response,
)
from services.gateway.models.routes import (
    CHANGES_MAX,
    decide_for_base,
    find_version,
    hash_now,
    unknown_base,
)
from services.gateway.views.tables.models import APPROVAL_RULES, BASES, MODEL_CHANGES
from services.gateway.web.deps import Admin, Caller, WithDeps
from services.gateway.web.domain.errors import invalid
from services.gateway.web.domain.responses import Page, listing
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router

RULES_MAX: Final = 2
router = new_router("models")


@router.post("/v1/models/{model_id:path}/approve")
async def approve_model(
    model_id: str, body: ApprovalRequest, deps: WithDeps, caller: Caller
) -> FineTunedModelResponse:
    """Agree that a version is promoted to a stage. The key of its author cannot."""
    row = await find_version(deps, caller, model_id)
    approval = Approval(stage=body.stage, key_id=caller.key_id)
    await deps.decide(caller, MODEL, ApproveVersion(model_id=row.id, approval=approval))
    return model_response(row)


@router.get("/v1/models/{model_id:path}/history")
async def model_history(model_id: str, deps: WithDeps, caller: Caller) -> Page[ModelChangeResponse]:
    """List the changes of a version, the oldest first: stages and approvals, and who asked for
    them.
    """
    row = await find_version(deps, caller, model_id)
    where = {"tenant": caller.tenant, "model_id": row.id}
    rows = await deps.views.page(MODEL_CHANGES, where, limit=CHANGES_MAX, descending=False)
    changes = [change_response(change, deps.unseal(change.actor, "actor")) for change in rows]
    return listing(Page[ModelChangeResponse], changes, False)


APPROVAL_RULE: Final = Resource(
    noun="approval rule",
    table=APPROVAL_RULES,
    response=ApprovalRuleResponse,
    respond=each(lambda _, row: rule_response(row.rule)),
    newest_first=False,
    limit=RULES_MAX,
    limit_max=RULES_MAX,
)
APPROVAL_RULE.add_list(
    router,
    "/v1/approval_rules",
    "list_approval_rules",
    "List the approvals that promotions need, by stage. A stage without a rule needs none.",
)


@router.post("/v1/approval_rules")
async def set_approval_rule(
    body: ApprovalRuleRequest, deps: WithDeps, caller: Caller
) -> ApprovalRuleResponse:
    """Set what promotions to a stage need. It needs a key that may change keys."""
    rule = ApprovalRule(
        stage=body.stage, required=body.required, approvers=tuple(dict.fromkeys(body.approvers))
    )
    await deps.decide(caller, MODEL, SetApprovalRule(rule=rule))
    return rule_response(rule)


@router.post("/v1/bases/{base_id:path}/check")
async def check_base(base_id: str, deps: WithDeps, admin: Admin) -> CheckedBaseResponse:
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
    checked = await decide_for_base(deps, admin, base_id, command)
    return CheckedBaseResponse(**dict(checked), path=row.base.path)
