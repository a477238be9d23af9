"""Quotas of principals: errors, and no request where there is nothing to set."""

import pytest

from tunery.platform.bus.kafka_quotas import limit_producers, producer_limits
from tunery.runtime.bus.abstract import Unavailable

ABSENT = "127.0.0.1:1"


async def test_an_unreachable_kafka_is_reported() -> None:
    with pytest.raises(Unavailable):
        await producer_limits({}, ABSENT)
    with pytest.raises(Unavailable):
        await limit_producers({}, ABSENT, {"node.a": 1})
    await limit_producers({}, ABSENT, {})
