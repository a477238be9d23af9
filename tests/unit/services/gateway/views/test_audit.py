"""Records of the audit topic as rows."""

import msgspec
import pytest

from schemas.audit import AuditEntry, AuditRecorded
from services.gateway.views.audit import changes_of
from services.gateway.views.tables.accounts import KEY_USES
from services.gateway.views.tables.audit import AUDIT_ENTRIES
from tests.unit.tunery.runtime.journal.memory_fixture import GARBAGE
from tunery.runtime.bus.abstract import Record

USE = AuditEntry(
    at=5, kind="use", tenant="acme", actor_tenant="acme", key_id="key_1", address="10.0.0.1"
)
READ = msgspec.structs.replace(USE, kind="content", object_ids=("a", "file-1"), status=200)


def record(offset: int) -> Record:
    recorded = AuditRecorded(writer="w", number=3, previous="0" * 64, entries=(USE, READ))
    return Record(0, offset, 9, b"w", msgspec.json.encode(recorded))


def test_security_m7_entries_are_rows_in_the_order_of_the_log() -> None:
    use, key, read = changes_of(record(7))
    assert [change.table for change in (use, key, read)] == [
        AUDIT_ENTRIES.name,
        KEY_USES.name,
        AUDIT_ENTRIES.name,
    ]
    assert (key.key, key.values) == ({"tenant": "acme", "id": "key_1"}, {"last_used_at": 5})
    assert (use.values["sequence"], read.values["sequence"]) == (7_000, 7_001)
    assert read.values["object_id"] == "file-1"


def test_security_m7_a_record_that_is_twice_on_the_log_has_its_rows_once() -> None:
    first, again = changes_of(record(7)), changes_of(record(8))
    assert [change.key for change in first] == [change.key for change in again]


@pytest.mark.parametrize("value", GARBAGE)
def test_an_unreadable_record_is_skipped_and_logged(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert changes_of(Record(0, 7, 1, b"w", value)) == ()
    assert [line.getMessage() for line in caplog.records] == ["audit.record_skipped"]
