"""One town for all API tests: each test has tenants of its own."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.unit.services.gateway.control_plane import Town, town


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api() -> AsyncIterator[Town]:
    async with town() as found:
        yield found
