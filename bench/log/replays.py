"""Reading a journal again: the bare fetch, with the acceptance rule, with the fold of `job`."""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from bench.log.jobs import PARTITION
from services.scheduler.app import JOBS
from tunery.runtime.bus.abstract import Log
from tunery.runtime.journal.fold import Fold, advance_all
from tunery.runtime.journal.reader import START, JournalBatch, JournalReader

IN_FLIGHT: Final = 2_000
BATCH_RECORDS: Final = 2_000
WAIT_MS: Final = 1_000
ROUNDS: Final = 3


async def fill(log: Log, topic: str, values: Iterable[bytes]) -> int:
    """Write the values to the partition, in order; how many there were."""
    writer = await log.writer(topic, PARTITION)
    flights: deque[Awaitable[Any]] = deque()
    written = 0
    for value in values:
        if len(flights) >= IN_FLIGHT:
            await flights.popleft()
        flights.append(await writer.submit(b"bench", value))
        written += 1
    while flights:
        await flights.popleft()
    await writer.close()
    return written


async def measure(log: Log, options: Mapping[str, Any], records: int) -> dict[str, float]:
    """The first `records` of the journal of `job`; the best of some rounds."""
    topic = JOBS.stream.journal.name
    bare = [await _bare(options, topic, records) for _ in range(ROUNDS)]
    counted = [await _count(log, records) for _ in range(ROUNDS)]
    folded = [await _fold(log, records) for _ in range(ROUNDS)]
    events_of_record = counted[0][0] / records
    return {
        "events_of_record": events_of_record,
        "bare_fetch_records_per_s": max(bare),
        "replay_events_per_s": max(events / seconds for events, seconds in counted),
        "replay_job_events_per_s": max(events / seconds for events, seconds in folded),
    }


async def _bare(options: Mapping[str, Any], topic: str, records: int) -> float:
    """Records per second of the client alone."""
    consumer = AIOKafkaConsumer(**options, enable_auto_commit=False)
    await consumer.start()
    try:
        topic_partition = TopicPartition(topic, PARTITION)
        consumer.assign([topic_partition])
        consumer.seek(topic_partition, 0)
        left, began = records, time.perf_counter()
        while left > 0:
            polled = await consumer.getmany(timeout_ms=WAIT_MS, max_records=BATCH_RECORDS)
            left -= sum(len(some) for some in polled.values())
        return records / (time.perf_counter() - began)
    finally:
        await consumer.stop()


async def _count(log: Log, records: int) -> tuple[int, float]:
    """Events accepted and decoded, and the seconds it took."""
    events = 0

    def count(batch: JournalBatch) -> None:
        nonlocal events
        for accepted in batch.accepted:
            events += len(accepted.events)

    seconds = await _read(log, records, count)
    return events, seconds


async def _fold(log: Log, records: int) -> tuple[int, float]:
    """Replay a log through the fold of `job`, as an owner does when it starts."""
    fold: Fold[Any] = Fold(JOBS.initial)
    events = 0

    def advance(batch: JournalBatch) -> None:
        nonlocal fold, events
        fold = advance_all(JOBS, fold, batch.accepted, batch.position)
        for accepted in batch.accepted:
            events += len(accepted.events)

    seconds = await _read(log, records, advance)
    return events, seconds


async def _read(log: Log, records: int, take: Callable[[JournalBatch], None]) -> float:
    reader = JournalReader(log, JOBS.stream, {PARTITION: START})
    await reader.open()
    try:
        began = time.perf_counter()
        while reader.positions[PARTITION].offset < records:
            for batch in (await reader.read(WAIT_MS, BATCH_RECORDS)).values():
                take(batch)
        return time.perf_counter() - began
    finally:
        await reader.close()
