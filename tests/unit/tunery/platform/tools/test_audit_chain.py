"""The chain of audit records, and what breaks it."""

from hashlib import sha256

import msgspec
import pytest

from schemas.audit import AuditEntry, AuditRecorded
from schemas.envelope import GENESIS
from tunery.platform.tools.audit_chain import AuditChain, BrokenAuditChain

ENTRY = AuditEntry(
    at=1, kind="change", tenant="a", actor_tenant="a", key_id="key_1", address="10.0.0.1"
)


def records() -> list[bytes]:
    """Two writers: the second begins after the first one's second record."""
    values: list[bytes] = []
    heads: dict[str, tuple[int, str]] = {}
    for writer in ("x", "x", "y", "x", "y"):
        start = sha256(values[-1]).hexdigest() if values else GENESIS.hex()
        number, previous = heads.get(writer, (0, start))
        record = AuditRecorded(writer=writer, number=number, previous=previous, entries=(ENTRY,))
        values.append(msgspec.json.encode(record))
        heads[writer] = number + 1, sha256(values[-1]).hexdigest()
    return values


def take(values: list[bytes]) -> AuditChain:
    chain = AuditChain()
    for value in values:
        chain.take(value)
    return chain


def test_security_m7_a_whole_chain_is_verified() -> None:
    tally = take(records()).tally
    assert (tally.records, tally.entries, tally.writers) == (5, 5, 2)
    assert tally.head == sha256(records()[-1]).hexdigest()


def test_security_m7_a_record_sent_twice_counts_once() -> None:
    values = records()
    assert take([*values[:3], values[1], *values[3:]]).tally.entries == 5


@pytest.mark.parametrize("number", range(3))  # the last ones of both writers: see `--against`
def test_security_m7_a_removed_record_is_noticed(number: int) -> None:
    values = records()
    with pytest.raises(BrokenAuditChain, match="record"):
        take(values[:number] + values[number + 1 :])


@pytest.mark.parametrize("number", range(3))
def test_security_m7_a_changed_record_is_noticed(number: int) -> None:
    values = records()
    values[number] = values[number].replace(b"10.0.0.1", b"10.9.9.9")
    with pytest.raises(BrokenAuditChain, match="changed or removed"):
        take(values)


@pytest.mark.parametrize("foreign", [b"", b"{}", b"not json"])
def test_security_m7_a_foreign_record_is_noticed(foreign: bytes) -> None:
    with pytest.raises(BrokenAuditChain, match="record 1 cannot be read"):
        take([records()[0], foreign])
