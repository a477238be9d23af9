"""One stack for all tests of this folder, which neither configure it nor leave it broken.

A worker starts it for the first of them and stops it after the last.
"""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.e2e.outages import SharedStack, cancel_jobs
from tests.e2e.shared.guests import Guest, new_guest


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shared_stack() -> AsyncIterator[SharedStack]:
    shared = SharedStack()
    yield shared
    await shared.close()


@pytest_asyncio.fixture(loop_scope="session")
async def home(shared_stack: SharedStack) -> AsyncIterator[Guest]:
    """The shared stack, with a tenant for this test alone."""
    async with new_guest(await shared_stack.ready()) as guest:
        yield guest
        await cancel_jobs(guest)  # which would keep the only node from the next test
