"""Outages of each server on a busy machine: paused and cut off, for seconds and for a minute."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
import pytest_asyncio

from tests.e2e.outages import Houses, Way, busy_machine, live_through
from tests.e2e.stories import House

pytestmark = pytest.mark.timeout(600)

SERVERS: Final = ("postgres", "kafka", "s3", "valkey")
WAYS: Final[tuple[Way, ...]] = ("paused", "cut off")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def houses() -> AsyncIterator[Houses]:
    shared = Houses()
    yield shared
    await shared.close()


@pytest_asyncio.fixture(loop_scope="session")
async def home(houses: Houses) -> House:
    return await houses.ready()


@pytest.fixture(autouse=True)
def load() -> Iterator[None]:
    with busy_machine():
        yield


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("server", SERVERS)
async def test_outage_of_ten_seconds_ends_by_itself(home: House, server: str, way: Way) -> None:
    await live_through(home, server, way, 10)


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("server", SERVERS)
async def test_outage_of_a_minute_ends_by_itself(home: House, server: str, way: Way) -> None:
    await live_through(home, server, way, 60)
