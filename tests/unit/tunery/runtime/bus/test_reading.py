"""One record of a partition, and all that it has when it is asked."""

from schemas.streams import PARTITIONS
from schemas.topics import AUDIT
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.reading import record_at, records_now

TOPIC = AUDIT.name
PARTITION = 1
VALUES = (b"a", b"b", b"c")


async def log_of(*values: bytes) -> MemoryLog:
    log = MemoryLog()
    await log.create([AUDIT], PARTITIONS)
    for value in values:
        await log.send(TOPIC, b"key", value, PARTITION)
    return log


async def test_the_record_at_an_offset_is_read() -> None:
    log = await log_of(*VALUES)
    assert [(await record_at(log, TOPIC, PARTITION, offset)).value for offset in range(3)] == [
        *VALUES
    ]


async def test_all_records_are_read_in_order() -> None:
    log = await log_of(*VALUES)
    read = [(record.offset, record.value) async for record in records_now(log, TOPIC, PARTITION)]
    assert read == list(enumerate(VALUES))


async def test_what_is_written_meanwhile_is_left_for_the_next_time() -> None:
    log = await log_of(*VALUES)
    read = []
    async for record in records_now(log, TOPIC, PARTITION):
        read.append(record.value)
        await log.send(TOPIC, b"key", b"later", PARTITION)
    assert read == [*VALUES]


async def test_an_empty_partition_has_none() -> None:
    log = await log_of(b"a")
    assert [record async for record in records_now(log, TOPIC, PARTITION + 1)] == []
