"""Entries on their way to the log: counted, bounded, chained, and sent again when it was away."""

import asyncio
from typing import Any

import msgspec
import pytest

from schemas.audit import AuditEntry, AuditKind, AuditRecorded
from schemas.streams import PARTITIONS
from schemas.topics import AUDIT, AUDIT_PARTITION
from services.gateway.audit import writing
from services.gateway.audit.writing import MINUTE_MS, AuditWriter
from tunery.platform.tools.audit_chain import AuditChain, AuditTally
from tunery.runtime.bus.abstract import Appended, AppendUnknown, Unavailable
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.clock import SystemClock


class SetClock(SystemClock):
    now = 1_000_000

    def now_ms(self) -> int:
        return self.now


class DoubtfulLog(MemoryLog):
    """Raises `doubts` one by one; an AppendUnknown has written the record nevertheless."""

    def __init__(self, *doubts: Exception) -> None:
        super().__init__()
        self.doubts = list(doubts)

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Appended:
        doubt = self.doubts.pop(0) if self.doubts else None
        if isinstance(doubt, Unavailable):
            raise doubt
        appended = await super().send(topic, key, value, partition)
        if doubt is not None:
            raise doubt
        return appended


async def created(log: MemoryLog) -> MemoryLog:
    await log.create([AUDIT], PARTITIONS)
    return log


def entry(kind: AuditKind = "change", at: int = 1_000_000, **fields: Any) -> AuditEntry:
    named = {"tenant": "acme", "actor_tenant": "acme", "key_id": "key_1", "address": "10.0.0.1"}
    return AuditEntry(kind=kind, at=at, **{**named, **fields})


def values(log: MemoryLog) -> list[bytes]:
    return [record.value for record in log.partition(AUDIT.name, AUDIT_PARTITION).records]


def sent(log: MemoryLog) -> list[AuditEntry]:
    records = [msgspec.json.decode(value, type=AuditRecorded) for value in values(log)]
    return [entry for record in records for entry in record.entries]


def verified(log: MemoryLog) -> AuditTally:
    chain = AuditChain()
    for value in values(log):
        chain.take(value)
    return chain.tally


async def test_security_m7_records_of_several_processes_follow_each_other() -> None:
    log, clock = await created(MemoryLog()), SetClock()
    first, second = AuditWriter(log, clock, "a"), AuditWriter(log, clock, "b")
    for writer in (first, second, first, second, first):
        writer.note(entry())
        await writer.send()
    tally = verified(log)
    assert (tally.records, tally.entries, tally.writers, tally.lost) == (5, 5, 2, 0)


async def test_security_m7_equal_readings_are_counted_and_changes_are_not() -> None:
    log, clock = await created(MemoryLog()), SetClock()
    writer = AuditWriter(log, clock, "a")
    for second in range(5):
        writer.note(entry("content", 1_000_000 + second, request_id=f"req_{second}"))
        writer.note(entry("change"))
        writer.note(entry("operator", method="DELETE"))
    await writer.send()
    kinds = [noted.kind for noted in sent(log)]
    assert (kinds.count("content"), kinds.count("change"), kinds.count("operator")) == (1, 5, 5)
    clock.now += MINUTE_MS
    await writer.send()
    last = sent(log)[-1]
    assert (last.kind, last.times, last.at, last.request_id) == ("content", 4, 1_000_004, "req_4")
    clock.now += MINUTE_MS
    await writer.send()
    assert len(sent(log)) == 12  # nothing came in the minute after


@pytest.mark.parametrize("doubt", [Unavailable("away"), AppendUnknown("who knows")])
async def test_security_m7_an_outage_of_the_log_loses_and_changes_nothing(
    doubt: Exception,
) -> None:
    log, clock = await created(DoubtfulLog(doubt)), SetClock()
    writer = AuditWriter(log, clock, "a")
    writer.note(entry())
    with pytest.raises(type(doubt)):
        await writer.send()
    writer.note(entry(key_id="key_2"))
    await writer.send()
    tally = verified(log)
    assert (tally.entries, tally.lost) == (2, 0)
    assert {noted.key_id for noted in sent(log)} == {"key_1", "key_2"}


async def test_security_m7_what_has_no_room_is_counted_on_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writing, "WAITING_MAX", 2)
    log = await created(MemoryLog())
    writer = AuditWriter(log, SetClock(), "a")
    for _ in range(5):
        writer.note(entry())
    await writer.send()
    tally = verified(log)
    assert (tally.entries, tally.lost) == (2, 3)
    assert [record.getMessage() for record in caplog.records] == ["audit.entries_lost"]


async def test_security_m7_what_waits_is_sent_when_the_process_ends() -> None:
    log = await created(MemoryLog())
    writer = AuditWriter(log, SetClock(), "a")
    task = asyncio.create_task(writer.run())
    await writer.ready()
    await asyncio.sleep(0)
    for _ in range(3):
        writer.note(entry("use"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [noted.times for noted in sent(log)] == [1, 2]
    assert verified(log).entries == 2
