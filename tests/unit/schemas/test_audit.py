"""Audit entries hold identifiers alone, so nothing in them is sealed."""

import msgspec

from schemas.audit import AuditEntry, AuditRecorded
from schemas.sealed import Sealed


def test_security_m7_an_entry_has_no_sealed_field_and_can_be_compared() -> None:
    entry = AuditEntry(
        at=1, kind="use", tenant="a", actor_tenant="a", key_id="key_1", address="::1"
    )
    assert len({entry, msgspec.structs.replace(entry), msgspec.structs.replace(entry, at=2)}) == 2
    for message in (AuditEntry, AuditRecorded):
        assert all(field.type is not Sealed for field in msgspec.structs.fields(message))
