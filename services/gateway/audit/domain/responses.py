"""Entries of the audit log as answers."""

from typing import Literal

from schemas.audit import AuditKind
from services.gateway.views.tables.audit import AuditRow
from services.gateway.web.domain.responses import Items, ListItem, Seconds, TextOrNone


class AuditEntryResponse(ListItem):
    """Record of an action: actor, origin and result.

    `created_at`: time of the last of the `times` equal requests. `tenant`: owner of its objects.
    `actor_tenant`, `key_id`, `address`: who sent it, from where; null: not known, or an operator,
    of whom a tenant is told no more. `route`: the path as a template. `object_ids`: what the path
    names, and what was created. `status`, `code`: of the answer.
    """

    id: str
    object: Literal["audit.entry"] = "audit.entry"
    created_at: Seconds
    kind: AuditKind
    tenant: TextOrNone
    actor_tenant: TextOrNone
    key_id: TextOrNone
    address: TextOrNone
    method: TextOrNone
    route: TextOrNone
    object_ids: Items[str]
    status: int | None
    code: str | None
    request_id: TextOrNone
    times: int


def entry_response(row: AuditRow, *, for_operator: bool) -> AuditEntryResponse:
    """An entry; for a tenant without who the operator is."""
    hidden = not for_operator and row.kind == "operator" and row.actor_tenant != row.tenant
    sender = {"actor_tenant": None, "key_id": None, "address": None} if hidden else {}
    return AuditEntryResponse.of(row, created_at=row.at, status=row.status or None, **sender)
