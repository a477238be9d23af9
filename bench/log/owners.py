"""The owner of a partition: its rate of decisions, its start-up time, its memory."""

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.log import jobs
from bench.log.appends import BARE, BARE_SETTINGS
from bench.log.jobs import PARTITION
from bench.log.replays import fill
from schemas.streams import PARTITIONS, Stream
from schemas.topics import SNAPSHOTS, TOPICS
from services.scheduler.app import JOBS
from tunery.platform.blobs.s3 import S3Blobs
from tunery.platform.bus.kafka import KafkaLog
from tunery.platform.connections import kafka_settings, patient_kafka_settings, s3_settings
from tunery.platform.process import spare_collector
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.hosts.owner import PartitionOwner, Settled
from tunery.runtime.ids import new_id
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.levels import LogLevels

WAIT_S: Final = 120
POLL_S: Final = 0.01
REST_S: Final = 1.0
MB: Final = 1_000_000
SOON: Final = HostLimits(snapshot_every=HostLimits.snapshot_least)  # quick journals are short
BARE_READ_RECORDS: Final = 500


@dataclass(frozen=True)
class OwnerPorts:
    """The ports of an owner."""

    name: str
    log: Log
    clock: Clock
    blobs: Blobs
    keys: SenderKeys = UNSIGNED
    levels: LogLevels = field(default_factory=LogLevels)


@asynccontextmanager
async def parts(settings: RuntimeSettings) -> AsyncIterator[OwnerPorts]:
    log, blobs = KafkaLog(patient_kafka_settings(settings)), S3Blobs(s3_settings(settings))
    try:
        yield OwnerPorts("bench", log, SystemClock(), blobs)
    finally:
        await blobs.close()
        await log.close()


# --- decisions ------------------------------------------------------------------------------------


async def decisions(settings: RuntimeSettings, commands: int) -> dict[str, float]:
    """Rate of deciding prepared commands with the real decider of `job`, first to last settled.

    Bare: the same bytes copied from the topic to another one by the client alone, with the same
    window.
    """
    stream, options = stream_of("job"), kafka_settings(settings).client_options
    async with parts(settings) as bundle:
        rate = await decision_rate(bundle, stream, commands)
    copied = await _copy(options, stream.commands.name, commands)
    return {"decisions_per_s": rate, "bare_copied_per_s": copied}


async def decision_rate(bundle: OwnerPorts, stream: Stream, commands: int) -> float:
    """Decisions per second of prepared commands of a new stream, first to last settled."""
    settled_s: list[float] = []
    await settle(
        bundle, stream, first_commands(commands), lambda: settled_s.append(time.perf_counter())
    )
    return (commands - 1) / (settled_s[-1] - settled_s[0])


def stream_of(name: str) -> Stream:
    """A stream of a bench, decided as `job` is."""
    return replace(JOBS.stream, name=f"bench.{name}")


def first_commands(count: int) -> list[bytes]:
    """The first of the lives of jobs."""
    lives = jobs.commands(count // jobs.COMMANDS_OF_JOB + 1)
    return [command.value for command in islice(lives, count)]


async def settle(
    bundle: OwnerPorts,
    stream: Stream,
    commands: Sequence[bytes],
    after_each: Callable[[], None],
) -> None:
    """Decide commands of a new stream; `after_each` is called when one was settled."""
    left = len(commands)
    done = asyncio.Event()

    def note(_: Settled) -> None:
        nonlocal left
        after_each()
        left -= 1
        if left == 0:
            done.set()

    await bundle.log.create((stream.commands, stream.journal), PARTITION + 1)
    await fill(bundle.log, stream.commands.name, commands)
    owner = PartitionOwner(
        bundle, replace(JOBS, stream=stream), PARTITION, "bench", new_id, HostLimits(), note
    )
    async with _running(owner):
        async with asyncio.timeout(WAIT_S):
            await done.wait()


async def _copy(options: Mapping[str, Any], topic: str, records: int) -> float:
    consumer = AIOKafkaConsumer(**options, enable_auto_commit=False)
    producer = AIOKafkaProducer(**options, **BARE_SETTINGS)
    await consumer.start()
    await producer.start()
    try:
        topic_partition = TopicPartition(topic, PARTITION)
        consumer.assign([topic_partition])
        consumer.seek(topic_partition, 0)
        flights: deque[Awaitable[Any]] = deque()
        left, began = records, time.perf_counter()
        while left > 0:
            for some in (await consumer.getmany(timeout_ms=1_000, max_records=256)).values():
                for record in some:
                    if len(flights) >= HostLimits.window:
                        await flights.popleft()
                    sent = await producer.send(BARE.name, record.value, partition=PARTITION)
                    flights.append(sent)
                left -= len(some)
        while flights:
            await flights.popleft()
        return records / (time.perf_counter() - began)
    finally:
        await consumer.stop()
        await producer.stop()


# --- restarts and memory --------------------------------------------------------------------------


async def measure_restarts(
    settings: RuntimeSettings, say: Callable[[str], None]
) -> dict[str, float]:
    """Processes of their own take over the partition `PARTITION` of `job`, as it is in the log.

    The first folds the whole journal and keeps a snapshot, the second begins from that; `empty`
    owns a partition in which nothing was ever written. Memory: resident, a second after the start.
    """
    empty = await _child(settings, PARTITION + 1, snapshot=False)
    say(f"an owner of nothing: {empty['rss_mb']:.0f} MB")
    zero = await _child(settings, PARTITION, snapshot=True)
    say(f"from zero: {zero['boot_s']:.1f} s, {zero['rss_mb']:.0f} MB")
    snapshot = await _child(settings, PARTITION, snapshot=False)
    say(f"from its snapshot: {snapshot['boot_s']:.1f} s, {snapshot['rss_mb']:.0f} MB")
    return {
        "empty_rss_mb": empty["rss_mb"],
        "zero_rss_mb": zero["rss_mb"],
        "snapshot_rss_mb": snapshot["rss_mb"],
        "boot_1m_from_zero_s": zero["boot_s"],
        "boot_1m_from_snapshot_s": snapshot["boot_s"],
    }


async def _child(settings: RuntimeSettings, partition: int, *, snapshot: bool) -> dict[str, float]:
    values = {name: getattr(settings, name) for name in RuntimeSettings.model_fields}
    with get_context("spawn").Pool(1) as pool:
        arguments = (values, partition, snapshot)
        return await asyncio.to_thread(pool.apply, measure_owner, arguments)


def measure_owner(values: Mapping[str, Any], partition: int, snapshot: bool) -> dict[str, float]:
    """Own the partition in this process, and measure start-up, one decision and memory."""
    spare_collector()
    return asyncio.run(_own(RuntimeSettings(**values), partition, snapshot))


async def _own(settings: RuntimeSettings, partition: int, snapshot: bool) -> dict[str, float]:
    async with parts(settings) as bundle:
        await bundle.log.create(TOPICS, PARTITIONS)
        owner = PartitionOwner(bundle, JOBS, partition, "bench", new_id, SOON, lambda _: None)
        began = time.perf_counter()
        async with _running(owner):
            await _until(lambda: owner.serving)
            boot_s = time.perf_counter() - began
            if snapshot:
                await _decide_one(bundle.log, partition)
            await asyncio.sleep(REST_S)
            return {"boot_s": boot_s, "rss_mb": _rss_mb()}


async def _decide_one(log: Log, partition: int) -> None:
    """Decide one more command, because snapshots are considered after each decision."""
    _, before = await log.bounds(SNAPSHOTS.name, partition)
    command = next(jobs.commands(0))
    await log.send(JOBS.stream.commands.name, command.key, command.value, partition)
    async with asyncio.timeout(WAIT_S):
        while (await log.bounds(SNAPSHOTS.name, partition))[1] == before:  # noqa: ASYNC110  # it asks the broker
            await asyncio.sleep(POLL_S)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  # the owner has no event for it
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def _running(owner: PartitionOwner[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(owner.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB
