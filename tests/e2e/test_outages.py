"""Outages of each server on a busy machine: paused and cut off, for seconds and for a minute."""

from collections.abc import AsyncIterator
from itertools import product
from typing import Final

import pytest
import pytest_asyncio

from tests.e2e.outages import REFUSED, SharedStack, Way, live_through
from tests.e2e.stories import RunningStack

pytestmark = pytest.mark.timeout(900)

SERVERS: Final = ("postgres", "kafka", "s3", "valkey")
WAYS: Final[tuple[Way, ...]] = ("paused", "cut off")
#: each server once, Kafka by the pause that its clients cannot notice by themselves
QUICK: Final = (
    ("postgres", "cut off"),
    ("kafka", "paused"),
    ("s3", "cut off"),
    ("valkey", "paused"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_stack() -> AsyncIterator[SharedStack]:
    shared = SharedStack()
    yield shared
    await shared.close()


@pytest_asyncio.fixture(loop_scope="session")
async def home(shared_stack: SharedStack) -> RunningStack:
    return await shared_stack.ready()


@pytest.mark.parametrize(
    ("server", "way"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.soak)
        for case in product(SERVERS, WAYS)
    ],
)
async def test_outage_of_ten_seconds_ends_by_itself(
    home: RunningStack, server: str, way: Way
) -> None:
    assert await live_through(home, server, way, 10) == REFUSED[server]


@pytest.mark.soak  # eight minutes together
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("server", SERVERS)
async def test_outage_of_a_minute_ends_by_itself(home: RunningStack, server: str, way: Way) -> None:
    assert await live_through(home, server, way, 60) == REFUSED[server]
