"""The log on the real broker, over each client library."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from itertools import count
from typing import Final
from uuid import uuid4

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient

from schemas.streams import FOREVER, PARTITIONS, Topic
from tests.contract.bus_suite import OperatedBusSuite, fresh_topic, take
from tunery.local.stack import Stack
from tunery.platform.bus.broker_settings import Driver
from tunery.platform.bus.drivers import open_log
from tunery.platform.connections import patient
from tunery.runtime.bus.abstract import Appended, AppendUnknown, OperatedLog, Unavailable

IN_FLIGHT: Final = 8
ENOUGH: Final = 50
ROUNDS: Final = 5  # one in two met it
REQUEST_MS_MAX: Final = 30_000  # topics are made slowly on a busy machine
RESTART_S_MAX: Final = 180


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["aiokafka", "confluent"])
async def log(servers: Stack, request: pytest.FixtureRequest) -> AsyncIterator[OperatedLog]:
    # patient, because a busy machine is not what the suite is about
    log = open_log(patient(servers.kafka_as(session_timeout_ms=2_000, driver=request.param)))
    yield log
    await log.close()


class TestKafkaLog(OperatedBusSuite):
    """The suite, against the real broker, over each client library."""


async def test_a_topic_that_another_process_is_making_is_written_without_a_warning(
    servers: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker names itself as the leader of a new partition before it takes records."""
    settings = patient(servers.kafka_as())
    maker, other = open_log(settings), open_log(settings)
    admin = AIOKafkaAdminClient(**settings.client_options)
    await admin.start()
    for _ in range(ROUNDS):
        topic = Topic(f"met.{uuid4().hex[:12]}", "key", FOREVER, ("tests",), ("tests",))
        making = asyncio.create_task(maker.create([topic], PARTITIONS))
        while topic.name not in await admin.list_topics():
            pass
        await other.create([topic], PARTITIONS)
        for partition in range(PARTITIONS):
            await other.send(topic.name, b"k", b"v", partition)
        await making
    await asyncio.gather(maker.close(), other.close(), admin.close())
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


@pytest.mark.parametrize("driver", ["aiokafka", "confluent"])
async def test_appends_into_a_killed_broker_are_acknowledged_only_where_they_are(
    servers: Stack, driver: Driver
) -> None:
    log = open_log(servers.kafka_as(driver=driver, request_ms_max=REQUEST_MS_MAX))
    topic = await fresh_topic(log)
    reader = await log.reader(topic, {0: 0})  # which lives through it
    acknowledged: dict[int, bytes] = {}
    numbers = count()

    async def append_until_doubt() -> None:
        """Keep some in flight until one is not acknowledged; what is behind it counts no more."""
        writer = await log.writer(topic, 0)
        flights: deque[tuple[bytes, Awaitable[Appended]]] = deque()
        try:
            while True:
                value = str(next(numbers)).encode()
                flights.append((value, await writer.submit(b"k", value)))
                if len(flights) == IN_FLIGHT:
                    value, outcome = flights.popleft()
                    acknowledged[(await outcome).offset] = value
                if len(acknowledged) == ENOUGH and not killed:
                    killed.extend(servers.kill("kafka"))
                if restarted and len(acknowledged) > restarted[0] + ENOUGH:
                    return
        finally:
            await writer.close()

    killed: list[int] = []
    restarted: list[int] = []
    async with asyncio.timeout(RESTART_S_MAX):
        with pytest.raises((AppendUnknown, Unavailable)):
            await append_until_doubt()
        await servers.await_ready("kafka")
        restarted.append(len(acknowledged))
        while True:
            with suppress(AppendUnknown, Unavailable):
                await append_until_doubt()
                break
            await asyncio.sleep(0.2)
    _, end = await log.bounds(topic, 0)
    records = await take(reader, end)
    await reader.close()
    await log.close()
    values = [record.value for record in records]
    assert {offset: values[offset] for offset in acknowledged} == acknowledged
    assert len(set(values)) == len(values), "an idempotent producer repeats nothing"
    assert sorted(values, key=int) == values, "and keeps the order"
