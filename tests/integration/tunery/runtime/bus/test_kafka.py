from collections.abc import AsyncIterator

import pytest_asyncio

from tests.contract.bus_suite import OperatedBusSuite
from tunery.local import Stack
from tunery.runtime.bus.kafka import KafkaLog


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def log(servers: Stack) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(servers.kafka_as(session_timeout_ms=2_000))
    yield log
    await log.close()


class TestKafkaLog(OperatedBusSuite):
    """The suite, against the real broker."""
