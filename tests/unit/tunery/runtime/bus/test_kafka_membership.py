"""Memberships without a broker: with one they are tested in tests/integration."""

import pytest

from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.kafka_membership import membership

NO_BROKER = {"bootstrap_servers": "127.0.0.1:1"}


async def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=f"Kafka at {NO_BROKER['bootstrap_servers']}: "):
        async with membership(NO_BROKER, "group", "topic", 6_000):
            raise AssertionError("nobody can be a member")
