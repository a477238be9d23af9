"""Whose bills a request is about: the caller's, or those of the tenant that an operator names."""

from typing import Annotated

from fastapi import Depends, Query

from schemas.account import ADMIN_SCOPE
from services.gateway.accounts.tables import TENANTS
from services.gateway.web.bodies import NAME_MAX
from services.gateway.web.deps import Caller, WithDeps, require
from services.gateway.web.errors import not_found


async def _billed(
    caller: Caller,
    deps: WithDeps,
    tenant: Annotated[
        str | None, Query(max_length=NAME_MAX, description="another tenant (admin key)")
    ] = None,
) -> str:
    """Raises ApiError 403 for a key without the admin scope, 404 for an unknown tenant."""
    if tenant is None or tenant == caller.tenant:
        return caller.tenant
    require(caller, ADMIN_SCOPE)
    if await deps.views.first(TENANTS, {"id": tenant}) is None:
        raise not_found("tenant", tenant, "tenant")
    return tenant


Billed = Annotated[str, Depends(_billed)]
