"""One control plane for all API tests: each test has tenants of its own."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.unit.services.gateway.control_plane import ControlPlane, control_plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        yield plane
