"""Commands of senders who may not send them are noted in the audit log."""

from typing import Any

import pytest

from schemas import errors
from schemas.audit import AuditEntry
from schemas.envelope import Rejected
from schemas.reasons import refusing
from schemas.units import DAY_MS
from services.gateway.audit.refused_senders import (
    KIND,
    SenderRefused,
    project_refused_sender,
    refused_senders,
)
from services.gateway.projection import project
from tests.unit.services.gateway.audit.test_writing import SetClock
from tests.unit.services.gateway.view_rows import header
from tunery.runtime.verbs import Todo

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
    assert effect.kind == row.kind == KIND
    assert await effect.run(row.body, row.tenant) is None
    return notes.entries


@pytest.mark.parametrize("stream", ["account", "dataset", "job", "pool", "model"])
def test_security_c2_a_refused_sender_is_noted_whatever_the_stream(stream: str) -> None:
    (row,) = rows(stream, FORGED)
    assert isinstance(row, Todo)
    assert rows(stream, Rejected(code=errors.MALFORMED, reason=refusing("tenant_not_key"))) == ()


async def test_security_c2_the_audit_log_names_sender_stream_and_command() -> None:
    (entry,) = await noted(FORGED)
    assert (entry.kind, entry.code, entry.at) == ("refusal", errors.SENDER_REFUSED, AT)
    assert (entry.method, entry.route, entry.tenant) == ("command", "account", "")
    assert entry.object_ids == ("node.evil", "CreateKey", "sender_not_permitted")
    (unknown,) = await noted(UNSIGNED)
    assert unknown.object_ids == ("sender_unproven",)


def test_refusals_of_a_minute_are_one_row() -> None:
    """A stranger may write as fast as Kafka takes it."""
    ids = {rows("pool", UNSIGNED, at)[0].id for at in range(1_020_000, 1_080_000, 1_000)}
    assert len(ids) == 1
    assert rows("pool", UNSIGNED, 1_080_000)[0].id not in ids


async def test_a_projection_that_is_rebuilt_does_not_note_the_past_again() -> None:
    assert await noted(FORGED, later_ms=DAY_MS + 1) == []
    assert project_refused_sender(header("job"), FORGED) != ()
