"""`/v1/integrations/mlflow`: the MLflow server that a tenant's jobs are written to."""

from base64 import b64encode
from typing import Final

from schemas.integrations import RemoveTrackingServer, SetTrackingServer, TrackingServer
from schemas.topics import ACCOUNT
from services.gateway.accounts.domain.bodies import TrackingServerRequest
from services.gateway.accounts.domain.responses import (
    TrackingServerResponse,
    tracking_server_response,
)
from services.gateway.views.tables.accounts import MLFLOW, TRACKING_SERVERS, TrackingServerRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import not_found
from services.gateway.web.domain.responses import Deleted
from services.gateway.web.routing import new_router

router = new_router("webhooks")
ROOT: Final = "/v1/integrations/mlflow"


@router.put(ROOT)
async def set_tracking_server(
    body: TrackingServerRequest, deps: WithDeps, caller: Caller
) -> TrackingServerResponse:
    """Name the MLflow server that jobs with an integration of the type mlflow are written to.

    What is open goes to it as well. Its credentials are encrypted, and never shown again.
    """
    header = _authorization(body)
    seal, tenant = deps.seal, caller.tenant
    server = TrackingServer(
        url=seal.seal(tenant, body.url.rstrip("/"), "url"),
        authorization=None if header is None else seal.seal(tenant, header, "authorization"),
    )
    await _decide(deps, caller, SetTrackingServer(server=server))
    return await retrieve_tracking_server(deps, caller)


@router.get(ROOT)
async def retrieve_tracking_server(deps: WithDeps, caller: Caller) -> TrackingServerResponse:
    allow_private = deps.settings.allow_private
    return tracking_server_response(
        await _known(deps, caller), deps.unseal, allow_private=allow_private
    )


@router.delete(ROOT)
async def remove_tracking_server(deps: WithDeps, caller: Caller) -> Deleted:
    """Forget the server. Jobs that were not written to it to their end are given up."""
    await _known(deps, caller)
    await _decide(deps, caller, RemoveTrackingServer())
    return Deleted(id=MLFLOW, object="integration.deleted")


def _authorization(body: TrackingServerRequest) -> str | None:
    """The header that the server is sent."""
    if body.token is not None:
        return f"Bearer {body.token}"
    if body.username is not None:
        pair = f"{body.username}:{body.password or ''}"
        return f"Basic {b64encode(pair.encode()).decode()}"
    return None


async def _decide(
    deps: Deps, caller: Principal, command: SetTrackingServer | RemoveTrackingServer
) -> None:
    await deps.decide(caller, ACCOUNT, command)


async def _known(deps: Deps, caller: Principal) -> TrackingServerRow:
    row = await deps.views.first(TRACKING_SERVERS, {"tenant": caller.tenant, "id": MLFLOW})
    if row is None:
        raise not_found("MLflow server", MLFLOW, "id")
    return row
