"""API keys: who may do what. A new secret is shown once."""

import time
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.calls import CallRefused, path_to
from services.gateway.console.visits import ROOT, Visit, route

KEYS: Final = "/v1/keys"
LIMIT: Final = 100
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


@route("/keys/{key_id}/revoke", "POST")
async def revoke(visit: Visit) -> Response:
    await visit.api.delete(visit.named(KEYS))
    return visit.go(f"{ROOT}/keys")


async def _listed(visit: Visit, new: dict[str, Any] | None = None) -> Response:
    after = visit.request.query_params.get("after")
    try:
        listed = await visit.api.get(KEYS, limit=LIMIT, after=after)
        own = await visit.api.get(f"{KEYS}/current")
    except CallRefused:
        if new is None:
            raise
        listed, own = {"data": [new], "has_more": False}, {"id": ""}  # its secret is not lost
    values = {"keys": listed["data"], "has_more": listed["has_more"], "own": own["id"]}
    return visit.page("keys/keys.html", new=new, roles=ROLES, now=int(time.time()), **values)


ROUTES: Final[tuple[Route, ...]] = (show, create, revoke)
