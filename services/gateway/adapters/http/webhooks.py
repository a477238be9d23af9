"""`/v1/webhook_endpoints`."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from schemas.account import CreateEndpoint, DeleteEndpoint
from schemas.ids import ENDPOINT
from schemas.topics import ACCOUNT
from services.gateway.adapters.http.deps import Caller, Deps, Principal, WithDeps
from services.gateway.adapters.http.pages import After, page
from services.gateway.domain.errors import not_found
from services.gateway.domain.requests import EndpointRequest
from services.gateway.domain.shapes import deleted, listing
from services.gateway.domain.shapes.accounts import delivery_object, endpoint_object
from services.gateway.domain.tables import DELIVERIES, ENDPOINTS
from services.gateway.ports import Row
from tunery.runtime.seal.webhooks import webhook_secret

LIMIT: Final = 20
LIMIT_MAX: Final = 100
SECRET_VERSION: Final = 1
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
router = APIRouter(prefix="/v1/webhook_endpoints", tags=["webhooks"])


@router.post("")
async def create_endpoint(body: EndpointRequest, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    """The signing secret is in this answer and in no other."""
    endpoint_id = deps.fresh(ENDPOINT)
    seal, tenant = deps.seal, caller.tenant
    await deps.commands.decide(
        ACCOUNT,
        tenant,
        CreateEndpoint(
            endpoint_id=endpoint_id,
            name=seal.seal(tenant, body.name),
            url=seal.seal(tenant, body.url),
            event_types=tuple(body.event_types),
            secret_version=SECRET_VERSION,
        ),
        actor=seal.seal(tenant, caller.key_id),
    )
    secret = webhook_secret(seal, tenant, endpoint_id, SECRET_VERSION)
    shown = endpoint_object(await _endpoint(deps, caller, endpoint_id), deps.opened)
    return {**shown, "signing_secret": secret}


@router.get("")
async def list_endpoints(
    deps: WithDeps, caller: Caller, after: After = None, limit: Limit = LIMIT
) -> dict[str, Any]:
    where = {"tenant": caller.tenant}
    rows, more = await page(deps.views, ENDPOINTS, where, limit=limit, after=after)
    return listing([endpoint_object(row, deps.opened) for row in rows], more)


@router.get("/{endpoint_id}")
async def retrieve_endpoint(endpoint_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    return endpoint_object(await _endpoint(deps, caller, endpoint_id), deps.opened)


@router.delete("/{endpoint_id}")
async def delete_endpoint(endpoint_id: str, deps: WithDeps, caller: Caller) -> dict[str, Any]:
    await _endpoint(deps, caller, endpoint_id)
    actor = deps.seal.seal(caller.tenant, caller.key_id)
    command = DeleteEndpoint(endpoint_id=endpoint_id)
    await deps.commands.decide(ACCOUNT, caller.tenant, command, actor=actor)
    return deleted("webhook_endpoint.deleted", endpoint_id)


@router.get("/{endpoint_id}/deliveries")
async def list_deliveries(
    endpoint_id: str, deps: WithDeps, caller: Caller, after: After = None, limit: Limit = LIMIT
) -> dict[str, Any]:
    """What was sent and what came of it; kept when the endpoint is deleted."""
    where = {"tenant": caller.tenant, "endpoint_id": endpoint_id}
    known = await deps.views.one(ENDPOINTS, {"tenant": caller.tenant, "id": endpoint_id})
    rows, more = await page(deps.views, DELIVERIES, where, limit=limit, after=after)
    if known is None and not rows:
        raise not_found("webhook endpoint", endpoint_id, "id")
    return listing([delivery_object(row) for row in rows], more)


async def _endpoint(deps: Deps, caller: Principal, endpoint_id: str) -> Row:
    row = await deps.views.one(ENDPOINTS, {"tenant": caller.tenant, "id": endpoint_id})
    if row is None:
        raise not_found("webhook endpoint", endpoint_id, "id")
    return row
