"""Outages of each server on a busy machine: paused and cut off, for seconds and for a minute."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
import pytest_asyncio

from tests.busy import busy_loops
from tests.e2e.outages import REFUSED, Houses, Way, live_through
from tests.e2e.stories import House

pytestmark = pytest.mark.timeout(600)

SERVERS: Final = ("postgres", "kafka", "s3", "valkey")
LOAD_S_MAX: Final = 600
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
    with busy_loops(LOAD_S_MAX):
        yield


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("server", SERVERS)
async def test_outage_of_ten_seconds_ends_by_itself(home: House, server: str, way: Way) -> None:
    assert await live_through(home, server, way, 10) == REFUSED[server]


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("server", SERVERS)
async def test_outage_of_a_minute_ends_by_itself(home: House, server: str, way: Way) -> None:
    assert await live_through(home, server, way, 60) == REFUSED[server]
