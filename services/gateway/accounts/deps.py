"""Whose jobs or bills a request is about, and the limits of a tenant's plan."""

from typing import Annotated

from fastapi import Depends, Query, Request

from schemas.account import ADMIN_SCOPE
from services.gateway.plan_limits import PlanLimits
from services.gateway.views.ports import Where
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.web.deps import Caller, Deps, WithDeps, require
from services.gateway.web.domain.bodies import NAME_MAX
from services.gateway.web.domain.errors import not_found


async def _named_tenant(
    request: Request,
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
    request.state.operator, request.state.tenant = True, tenant
    return tenant


async def limits_of(deps: Deps, tenant: str) -> PlanLimits:
    """The limits of a tenant's plan. One that is not known yet is an operator's."""
    row = await deps.views.first(TENANTS, {"id": tenant})
    return deps.settings.plan_limits["premium" if row is None else row.plan]


NamedTenant = Annotated[str, Depends(_named_tenant)]


async def rows_of_named_tenant(tenant: NamedTenant) -> Where:
    """Rows of the caller's tenant, or, for operators, of the one that `tenant` names."""
    return {"tenant": tenant}
