"""Producers without a broker: with one they are tested in tests/integration."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import pytest

from tunery.platform.bus.kafka_producer import AiokafkaProducer, Producer, SharedProducer
from tunery.runtime.bus.abstract import Unavailable

NOWHERE: Final = "127.0.0.1:1"
WAIT_MS = 2_000


async def test_a_broker_that_is_not_there_is_named_and_not_asked_again_at_once() -> None:
    later: list[Coroutine[Any, Any, None]] = []

    async def connect(wait_ms: int) -> Producer:
        return await AiokafkaProducer.connect({"bootstrap_servers": NOWHERE}, wait_ms, later.append)

    producer = SharedProducer(connect, NOWHERE, WAIT_MS, later.append)
    with pytest.raises(Unavailable, match=f"Kafka at {NOWHERE}: "):
        await producer.send("commands", 0, b"key", b"value")
    with pytest.raises(Unavailable, match="did not answer a moment ago"):
        await producer.send("commands", 0, b"key", b"value")
    producer.close()
    await asyncio.gather(*later)
