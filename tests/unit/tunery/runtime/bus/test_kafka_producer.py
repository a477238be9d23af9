"""Producers without a broker: with one they are tested in tests/integration."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.kafka_producer import KafkaWriter, SharedProducer

NO_BROKER = {"bootstrap_servers": "127.0.0.1:1"}
WAIT_MS = 2_000


async def test_a_broker_that_is_not_there_is_named_and_not_asked_again_at_once() -> None:
    later: list[Coroutine[Any, Any, None]] = []
    producer = SharedProducer(NO_BROKER, WAIT_MS, later.append)
    with pytest.raises(Unavailable, match=f"Kafka at {NO_BROKER['bootstrap_servers']}: "):
        await producer.send("commands", 0, b"key", b"value")
    with pytest.raises(Unavailable, match="did not answer a moment ago"):
        await producer.send("commands", 0, b"key", b"value")
    producer.close()
    await asyncio.gather(*later)


async def test_a_writer_does_not_open_without_a_broker() -> None:
    later: list[Coroutine[Any, Any, None]] = []
    with pytest.raises(Unavailable, match=f"Kafka at {NO_BROKER['bootstrap_servers']}: "):
        await KafkaWriter.open(NO_BROKER, "journal", 0, WAIT_MS, later.append)
    await asyncio.gather(*later)
