"""API keys, one for each member: who may do what, and whose approvals promotions need.

A new secret is shown once.
"""

import time
from collections.abc import Collection
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from schemas.account import ADMIN_SCOPE, BUDGETS_SCOPE, KEYS_SCOPE
from services.gateway.accounts.auth import BOOTSTRAP
from services.gateway.console.calls import CallRefused, path_to
from services.gateway.console.models.page import STAGES
from services.gateway.console.visits import ROOT, Visit, form_of, route
from services.gateway.console.words import number
from services.gateway.web.domain.scopes import SCOPES, allows

KEYS: Final = "/v1/keys"
RULES: Final = "/v1/approval_rules"
LIMIT: Final = 100
#: what rights are about, in the order of the scopes
SUBJECTS: Final = (*dict.fromkeys(each.split(".")[0] for each in SCOPES if "." in each),)
#: `write` does not include them
APART: Final = frozenset({BUDGETS_SCOPE, KEYS_SCOPE})
#: rights as a form offers them: name → scopes
ROLES: Final = {
    "Everything of the tenant": ("read", "write"),
    "Look only": ("read",),
    "Ask models": ("chat.write", "models.read"),
    "Train": ("read", "files.write", "jobs.write"),
    "Promote models": ("read", "models.write"),
    "Manage keys": ("read", "keys.write"),
    "Read the bill": ("billing.read", "budgets.read"),
}


@route("/keys")
async def show(visit: Visit) -> Response:
    return await _listed(visit)


@route("/keys", "POST")
async def create(visit: Visit) -> Response:
    """Make a key for this tenant, as an operator."""
    form = await visit.form()
    scopes = ROLES.get(form.get("role", ""), ())
    path = f"{path_to('/v1/tenants', visit.person.tenant)}/keys"
    new = await visit.api.post(path, {"name": form.get("name", ""), "scopes": [*scopes]})
    return await _listed(visit, new)


@route("/keys/approvals", "POST")
async def set_approvals(visit: Visit) -> Response:
    """Say how many of whose approvals promotions to a stage need."""
    form = await form_of(visit.request)
    approvers = [str(each) for each in form.getlist("approver")]
    required = number(str(form.get("required", "")), int)
    body = {"stage": form.get("stage"), "required": required, "approvers": approvers}
    await visit.api.post(RULES, body)
    return visit.go(f"{ROOT}/keys#approvals")


@route("/keys/{key_id}/revoke", "POST")
async def revoke(visit: Visit) -> Response:
    await visit.api.delete(visit.named(KEYS))
    return visit.go(f"{ROOT}/keys")


async def _listed(visit: Visit, new: dict[str, Any] | None = None) -> Response:
    after = visit.request.query_params.get("after")
    try:
        listed = await visit.api.get(KEYS, limit=LIMIT, after=after)
        own = await _own_id(visit)
        rules = (await visit.api.get(RULES))["data"]
    except CallRefused:
        if new is None:
            raise
        # its secret is not lost
        listed, own, rules = {"data": [new], "has_more": False}, "", []
    now = int(time.time())
    for each in listed["data"]:
        is_over = each["expires_at"] is not None and each["expires_at"] <= now
        each["status"] = "revoked" if each["revoked_at"] else "expired" if is_over else "active"
        each["rights"] = rights(each["scopes"])
    values = {
        "keys": listed["data"],
        "has_more": listed["has_more"],
        "own": own,
        "installed": BOOTSTRAP,
        "rules": {rule["id"]: rule for rule in rules},
        "names": {each["id"]: each["name"] or each["id"] for each in listed["data"]},
    }
    choices: dict[str, Any] = {"roles": ROLES, "subjects": SUBJECTS, "stages": STAGES}
    return visit.page("keys/keys.html", new=new, **choices, **values)


async def _own_id(visit: Visit) -> str:
    """Return the id of the key that is signed in with."""
    try:
        key: dict[str, Any] = await visit.api.get(f"{KEYS}/current")
    except CallRefused as refusal:
        if refusal.status != 404:
            raise
        return BOOTSTRAP
    return str(key["id"])


def rights(scopes: Collection[str]) -> dict[str, str]:
    """Return what a key with these scopes may do with each subject: read, change, both, nothing."""
    held = frozenset(scopes)
    rows = {}
    for subject in SUBJECTS:
        reading, changing = f"{subject}.read", f"{subject}.write"
        enough = {changing, ADMIN_SCOPE} if changing in APART else {changing, "write"}
        may = {"read": allows(held, reading), "change": changing in SCOPES and bool(held & enough)}
        rows[subject] = ", ".join(name for name, is_right in may.items() if is_right)
    return rows


ROUTES: Final[tuple[Route, ...]] = (show, create, set_approvals, revoke)
