"""`/v1/audit`: who did what. Operators see all entries, a tenant those about its own things."""

from typing import Annotated, Any, Final, Literal

from fastapi import Query, Request

from schemas.account import ADMIN_SCOPE
from schemas.audit import AuditKind
from services.gateway.audit.domain.responses import AuditEntryResponse, entry_response
from services.gateway.views.ports import IntRange
from services.gateway.views.tables.audit import AUDIT_ENTRIES
from services.gateway.web.deps import Caller, WithDeps, require
from services.gateway.web.domain.bodies import NAME_MAX
from services.gateway.web.domain.responses import Page, listing
from services.gateway.web.pages import ID_CHARACTERS_MAX, After, page
from services.gateway.web.routing import new_router

LIMIT: Final = 100
LIMIT_MAX: Final = 1_000
SECONDS_MAX: Final = 253_402_300_800  # the year 10000
router = new_router("audit", "/v1/audit")
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
Id = Annotated[str | None, Query(max_length=ID_CHARACTERS_MAX)]
Tenant = Annotated[
    str | None, Query(max_length=NAME_MAX, description="of this tenant; admin keys: else of all")
]
Seconds = Annotated[int | None, Query(ge=0, lt=SECONDS_MAX)]


@router.get("")
async def list_audit_entries(
    request: Request,
    deps: WithDeps,
    caller: Caller,
    tenant: Tenant = None,
    key_id: Id = None,
    object_id: Id = None,
    kind: AuditKind | None = None,
    since: Seconds = None,
    until: Seconds = None,
    order: Literal["asc", "desc"] = "desc",
    after: After = None,
    limit: Limit = LIMIT,
) -> Page[AuditEntryResponse]:
    """List what was done with keys, newest first. `since`, `until`: seconds, `until` excluded."""
    is_operator = ADMIN_SCOPE in caller.scopes
    if is_operator:
        request.state.operator = True
    else:
        tenant = tenant or caller.tenant
        if tenant != caller.tenant:
            require(caller, ADMIN_SCOPE)
    filters = {"tenant": tenant, "key_id": key_id, "object_id": object_id, "kind": kind}
    where: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
    if since is not None or until is not None:
        where["at"] = IntRange((since or 0) * 1_000, (until or SECONDS_MAX) * 1_000)
    rows, more = await page(
        deps.views,
        AUDIT_ENTRIES,
        where,
        limit=limit,
        after=after,
        descending=order == "desc",
    )
    entries = [entry_response(row, for_operator=is_operator) for row in rows]
    return listing(Page[AuditEntryResponse], entries, more)
