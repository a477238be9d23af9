"""Entries of the audit log as answers."""

from typing import Literal

from schemas.audit import AuditKind
from services.gateway.audit.tables import AuditRow
from services.gateway.web.responses import ListItem, seconds


class AuditEntryResponse(ListItem):
    """Who did what, from where, with which result.

    `created_at`: of the last of the `times` equal requests. `tenant`: whose things it was about.
    `actor_tenant`, `key_id`, `address`: who sent it, from where; null: not known, or an operator,
    of whom a tenant is told no more. `route`: the path as a template. `object_ids`: what the path
    names, and what was created. `status`, `code`: of the answer.
    """

    id: str
    object: Literal["audit.entry"] = "audit.entry"
    created_at: int
    kind: AuditKind
    tenant: str | None
    actor_tenant: str | None
    key_id: str | None
    address: str | None
    method: str | None
    route: str | None
    object_ids: list[str]
    status: int | None
    code: str | None
    request_id: str | None
    times: int


def entry_response(row: AuditRow, *, for_operator: bool) -> AuditEntryResponse:
    """An entry; for a tenant without who the operator is."""
    hidden = not for_operator and row.kind == "operator" and row.actor_tenant != row.tenant
    return AuditEntryResponse(
        id=row.id,
        created_at=seconds(row.at),
        kind=row.kind,
        tenant=row.tenant or None,
        actor_tenant=None if hidden else row.actor_tenant or None,
        key_id=None if hidden else row.key_id or None,
        address=None if hidden else row.address or None,
        method=row.method or None,
        route=row.route or None,
        object_ids=list(row.object_ids),
        status=row.status or None,
        code=row.code,
        request_id=row.request_id or None,
        times=row.times,
    )
