"""Three brokers with Kafka's own settings: owners join, and an operator prepares them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from schemas.streams import PARTITIONS
from schemas.topics import JOB, TELEMETRY, TOPICS
from tests.kafka_brokers import StockBrokers, stock_brokers
from tests.stacks import temporary_data_dir
from tunery.platform.bus.kafka import KafkaLog, KafkaSettings
from tunery.platform.bus.kafka_configs import alter_topics, describe
from tunery.platform.bus.preparation import Unsuitable, check_brokers, provide_topics
from tunery.runtime.bus.abstract import Unavailable

SEEN_S_MAX: Final = 180.0  # a broker shows a new setting some seconds after it was taken

pytestmark = pytest.mark.timeout(900)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def brokers() -> AsyncIterator[StockBrokers]:
    with temporary_data_dir() as folder:
        async with stock_brokers(folder) as running:
            await provide_topics(KafkaSettings(running.bootstrap))
            yield running


async def until_shown(settings: KafkaSettings, topic: str, wanted: dict[str, str]) -> None:
    async with asyncio.timeout(SEEN_S_MAX):
        while True:
            shown = (await describe(settings, [topic])).topics[topic].settings or {}
            if {name: shown[name] for name in wanted} == wanted:
                return
            await asyncio.sleep(0.2)


async def test_review2_p1_owners_join_with_the_default_session(brokers: StockBrokers) -> None:
    log = KafkaLog(KafkaSettings(brokers.bootstrap))
    try:
        async with log.membership("default", JOB.commands.name) as changes:
            assert await anext(changes) == frozenset(range(PARTITIONS))
    finally:
        await log.close()


@pytest.mark.parametrize("session_ms", [3_000, 5_999])
async def test_review2_p1_a_session_that_brokers_refuse_is_named(
    brokers: StockBrokers, session_ms: int
) -> None:
    settings = KafkaSettings(brokers.bootstrap, session_timeout_ms=session_ms)
    with pytest.raises(Unsuitable, match="TUNERY_SESSION_TIMEOUT_MS=6000") as unsuitable:
        await check_brokers(settings)
    assert len(unsuitable.value.problems) == len(brokers.ports), "each broker is asked"
    log = KafkaLog(settings)
    try:
        with pytest.raises(Unavailable, match=f"refuses sessions of {session_ms} ms: set TUNERY_"):
            async with log.membership("short", JOB.commands.name):
                raise AssertionError("nobody joins")
    finally:
        await log.close()


async def test_review2_p1_topics_have_three_replicas_and_two_must_have_a_record(
    brokers: StockBrokers,
) -> None:
    there = await describe(KafkaSettings(brokers.bootstrap), [topic.name for topic in TOPICS])
    for topic in TOPICS:
        state = there.topics[topic.name]
        assert (state.partitions, state.replicas) == (topic.partitions or PARTITIONS, 3)
        assert state.settings is not None
        assert state.settings["min.insync.replicas"] == "2"


@pytest.mark.parametrize("dead", [0, 1, 2])
async def test_review2_p5_one_broker_is_away_and_topics_get_the_catalogues_settings(
    brokers: StockBrokers, dead: int
) -> None:
    settings = KafkaSettings(brokers.bootstrap)
    own = {"retention.bytes": str(1_000 + dead), "max.message.bytes": "5000000", "segment.ms": "9"}
    await alter_topics(
        settings,
        {JOB.journal.name: own, TELEMETRY.name: {"retention.ms": str(1_000 + dead)}},
    )
    await until_shown(settings, JOB.journal.name, own)
    brokers.supervisor.kill(brokers.names[dead], restart=False)
    try:
        await check_brokers(settings)
        notes = await provide_topics(settings)
        kept = {"retention.bytes": "-1", "max.message.bytes": "5000000", "segment.ms": "9"}
        await until_shown(settings, JOB.journal.name, kept)
        await until_shown(settings, TELEMETRY.name, {"retention.ms": str(TELEMETRY.retention_ms)})
    finally:
        await brokers.supervisor.restart(brokers.names[dead])
    assert any(f"{JOB.journal.name}: max.message.bytes is 5000000" in note for note in notes)


async def test_review2_p1_one_broker_that_wants_three_for_its_groups_is_refused() -> None:
    with temporary_data_dir() as folder:
        async with stock_brokers(folder, 1) as alone:
            with pytest.raises(Unsuitable, match=r"start 3 brokers, or .*factor=1") as refused:
                await check_brokers(KafkaSettings(alone.bootstrap))
    assert [problem.name for problem in refused.value.problems] == [
        "offsets.topic.replication.factor"
    ]
