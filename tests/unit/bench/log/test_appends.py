"""The records that the bench appends form a valid journal, and a gap in it is noticed."""

import pytest

from bench.log.appends import OURS, Chained
from bench.log.jobs import PARTITION
from schemas.envelope import Claim
from schemas.streams import PARTITIONS
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.clock import SystemClock
from tunery.runtime.journal.acceptance import INITIAL, judge
from tunery.runtime.journal.codec import decode_record, encode
from tunery.runtime.tools.verify import read_all


async def begun() -> tuple[MemoryLog, Chained]:
    log = MemoryLog(SystemClock())
    await log.create((OURS,), PARTITIONS)
    writer, claim = await log.writer(OURS.name, PARTITION), Claim(owner="bench", nonce="0")
    return log, Chained(writer, await writer.append(b"", encode(claim)), claim)


async def test_every_record_is_accepted() -> None:
    log, ours = await begun()
    for _ in range(5):
        await (await ours.submit())
    state, reasons = INITIAL, []
    for record in await read_all(log, OURS.name, PARTITION):
        parsed = decode_record(record.value)
        state, reason = judge(state, record.offset, parsed, record.value)
        reasons.append(reason)
    assert reasons == ["claim", None, None, None, None, None]
    assert state == ours.ahead


async def test_a_record_of_another_writer_is_noticed() -> None:
    log, ours = await begun()
    await (await log.writer(OURS.name, PARTITION)).append(b"", b"{}")
    with pytest.raises(RuntimeError, match="expected 1"):
        await (await ours.submit())
