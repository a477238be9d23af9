"""A tail that follows, and walks that say how far they are."""

import asyncio

import pytest

from schemas.topics import ACCOUNT
from tests.unit.tunery.cli.journal.journals import OWNERS, filled, records
from tunery.cli.journal import scan
from tunery.cli.journal.scan import TailOptions
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.tools.inspection import RecordReport

HERE = OWNERS.partition
WAIT_S = 180


async def first(log: MemoryLog, options: TailOptions, count: int) -> list[RecordReport]:
    """The first records of a tail; those of the other story are written once it has begun."""
    looked: list[RecordReport] = []
    async with asyncio.timeout(WAIT_S):
        async for shown in scan.tail(log, "account", scan.partitions_of(None), options):
            looked.append(shown)
            if len(looked) == 1:
                for record in OWNERS.records[14:]:
                    log.put(ACCOUNT.journal.name, HERE, record.key, record.value)
            if len(looked) == count:
                break
    return looked


def begun() -> MemoryLog:
    log = filled()
    records(log, "account", HERE).extend(OWNERS.records[:14])
    return log


async def test_a_tail_goes_on_as_records_are_written() -> None:
    looked = await first(begun(), TailOptions(None, with_void=False, lines_max=1, follow=True), 3)
    assert [(record.offset, record.verdict) for record in looked] == [
        (12, "accepted"),
        (14, "accepted"),
        (15, "accepted"),
    ]


async def test_a_followed_partition_ends_with_the_record_that_stops_readers() -> None:
    log = begun()
    put = log.put

    def spoilt(topic: str, partition: int, key: bytes, value: bytes) -> object:
        return put(topic, partition, key, value.replace(b"KeyCreated.v1", b"KeyCreated.v9"))

    log.put = spoilt  # type: ignore[method-assign,assignment]  # a newer version writes
    options = TailOptions(None, with_void=True, lines_max=1, follow=True)
    looked = await first(log, options, 2)
    assert [(record.offset, record.verdict) for record in looked] == [
        (13, "claim"),
        (14, "unreadable"),
    ]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await first(log, TailOptions("nobody", with_void=False, lines_max=0, follow=True), 1)


async def test_long_scans_report_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scan, "PROGRESS_EVERY_S", 0.0)
    await scan.verify(filled(OWNERS.name), "account", scan.partitions_of(None))
    assert "account: 16 of 16 records" in capsys.readouterr().err


async def test_a_scan_ends_at_the_logs_end_when_it_began() -> None:
    log = filled(OWNERS.name)
    bounds = await scan.bounds_of(log, ACCOUNT, (HERE,))
    log.put(ACCOUNT.journal.name, HERE, b"", OWNERS.records[0].value)
    looked = [record async for batch in scan.records_of(log, ACCOUNT, bounds) for record in batch]
    assert [record.offset for record in looked] == list(range(16))
