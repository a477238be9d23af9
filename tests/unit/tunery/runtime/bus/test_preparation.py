"""Preparation without a broker; `tests/integration` has it on a real one."""

import pytest

from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.kafka import KafkaSettings
from tunery.runtime.bus.preparation import add_account, prepare_kafka


async def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"Kafka at 127\.0\.0\.1:1"):
        await prepare_kafka(KafkaSettings("127.0.0.1:1"), {"gateway": "gateway"})
    with pytest.raises(Unavailable, match=r"Kafka at 127\.0\.0\.1:1"):
        await add_account(KafkaSettings("127.0.0.1:1"), "node.a", "password")
