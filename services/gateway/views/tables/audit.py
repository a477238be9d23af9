"""Read model of what was noted about requests."""

from typing import Final

from schemas.audit import AuditKind
from schemas.units import Ms
from services.gateway.views.table import Table, TableIndex, TableRow


class AuditRow(TableRow):
    """An entry; see `schemas.audit.AuditEntry`."""

    tenant: str
    sequence: int  # its position on the log
    at: Ms
    kind: AuditKind
    actor_tenant: str
    key_id: str
    address: str
    method: str
    route: str
    object_ids: tuple[str, ...]
    status: int
    request_id: str
    times: int
    code: str | None = None
    object_id: str | None = None  # the last of `object_ids`, the most special one


AUDIT_ENTRIES: Final = Table(
    "audit_entries",
    AuditRow,
    key=("id",),
    order="sequence",
    indexes=(
        TableIndex(("sequence", "id")),
        TableIndex(("tenant", "sequence")),
        TableIndex(("object_id", "sequence")),
        TableIndex(("key_id", "sequence")),
    ),
)
