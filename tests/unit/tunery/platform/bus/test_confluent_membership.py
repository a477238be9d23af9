"""Memberships without a broker: with one they are tested in tests/integration."""

import asyncio
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tunery.platform.bus import confluent_membership
from tunery.platform.bus.confluent import ConfluentLog
from tunery.platform.bus.kafka import KafkaSettings
from tunery.runtime.bus.abstract import Unavailable


async def test_a_broker_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_membership, "join_ms_max", lambda _session_ms: 200)
    log = ConfluentLog(KafkaSettings("127.0.0.1:1", driver="confluent"))
    with pytest.raises(Unavailable, match=r"Kafka at 127\.0\.0\.1:1: no group owners to join"):
        async with log.membership("owners", "commands"):
            raise AssertionError("nobody can be a member")
    await log.close()


class Broken:
    """A consumer of librdkafka that is assigned a partition, and then fails for good."""

    def __init__(self, _options: Any) -> None:
        self.is_closed = False

    def subscribe(self, _topics: list[str], *, on_assign: Any, **_callbacks: Any) -> None:
        self._assign = on_assign

    def poll(self, _wait_s: float) -> None:
        if self._assign is None:
            raise KafkaException(KafkaError(KafkaError.NETWORK_EXCEPTION))
        assign, self._assign = self._assign, None
        assign(self, [TopicPartition("commands", 3)])

    def incremental_assign(self, _partitions: list[TopicPartition]) -> None: ...

    def pause(self, _partitions: list[TopicPartition]) -> None: ...

    def close(self) -> None:
        self.is_closed = True


async def test_a_member_whose_client_fails_gives_up_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumers: list[Broken] = []

    def broken(options: Any) -> Broken:
        consumers.append(Broken(options))
        return consumers[0]

    monkeypatch.setattr(confluent_membership, "Consumer", broken)
    log = ConfluentLog(KafkaSettings("127.0.0.1:1", driver="confluent"))
    async with log.membership("owners", "commands") as changes:
        assert await anext(changes) == {3}
        with pytest.raises(Unavailable, match="NETWORK_EXCEPTION"):
            async with asyncio.timeout(180):
                await anext(changes)
    assert consumers[0].is_closed
    await log.close()
