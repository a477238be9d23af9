"""Commands of senders who may not send them are noted in the audit log."""

from typing import Any

from schemas import errors
from schemas.audit import AuditEntry
from schemas.envelope import Rejected
from schemas.reasons import refusing
from schemas.units import DAY_MS
from services.gateway.audit.writing import refused_senders
from services.gateway.views.projections.journals import project, project_refused_sender
from services.gateway.views.todos import REFUSED_SENDER, SenderRefused
from tests.unit.services.gateway.audit.test_writing import SetClock
from tests.unit.services.gateway.view_rows import header

AT = 1_000_000
FORGED = Rejected(
    code=errors.SENDER_REFUSED,
    reason=refusing("sender_not_permitted", sender="node.evil", command="CreateKey"),
)
UNSIGNED = Rejected(code=errors.SENDER_REFUSED, reason=refusing("sender_unproven"))


class Notes:
    name = "notes"

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    def note(self, entry: AuditEntry) -> None:
        self.entries.append(entry)

    async def run(self) -> None: ...

    async def ready(self) -> None: ...


def rows(stream: str, event: Rejected, at: int = AT) -> tuple[Any, ...]:
    return project(header(stream, at=at), event)


async def noted(event: Rejected, later_ms: int = 0) -> list[AuditEntry]:
    (row,) = rows("account", event)
    assert isinstance(row.body, SenderRefused)
    notes, clock = Notes(), SetClock()
    clock.now = AT + later_ms
    effect = refused_senders(notes, clock)
    assert effect.kind == row.kind == REFUSED_SENDER
    assert await effect.run(row.body, row.tenant) is None
    return notes.entries


async def test_security_c2_the_audit_log_names_sender_stream_and_command() -> None:
    (entry,) = await noted(FORGED)
    assert (entry.kind, entry.code, entry.at) == ("refusal", errors.SENDER_REFUSED, AT)
    assert (entry.method, entry.route, entry.tenant) == ("command", "account", "")
    assert entry.object_ids == ("node.evil", "CreateKey", "sender_not_permitted")
    (unknown,) = await noted(UNSIGNED)
    assert unknown.object_ids == ("sender_unproven",)


async def test_review2_e7_what_an_operator_has_refused_is_in_the_audit_log() -> None:
    why = refusing("operator_refused", operator="ada", why="it names a tenant's secret plan")
    order = Rejected(code=errors.OPERATOR_REFUSED, reason=why)
    (entry,) = await noted(order)
    assert (entry.kind, entry.code, entry.route) == ("operator", order.code, "account")
    assert entry.object_ids[0] == "ada"
    assert "secret plan" not in repr(entry)
    (row,) = rows("account", order)
    assert row.id != rows("pool", order)[0].id, "each order is an entry of its own"


async def test_a_projection_that_is_rebuilt_does_not_note_the_past_again() -> None:
    assert await noted(FORGED, later_ms=DAY_MS + 1) == []
    assert project_refused_sender(header("job"), FORGED) != ()
