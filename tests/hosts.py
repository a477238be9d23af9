"""Hosts that run while a test does something with them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tunery.runtime.hosts.abstract import Host

READY_S_MAX = 180


@asynccontextmanager
async def running(*hosts: Host) -> AsyncIterator[None]:
    """Run the hosts inside the block, which begins once all of them are ready."""
    tasks = [asyncio.create_task(host.run()) for host in hosts]
    try:
        async with asyncio.timeout(READY_S_MAX):
            for host in hosts:
                await host.ready()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
