"""LISTEN on a connection of its own, that comes back after an outage and says what it missed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import asyncpg

from schemas.units import Ms
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.work")
CONNECT_MS_MAX: Final = 3_000
BACKOFF_MS: Final[Ms] = 500
BACKOFF_MS_MAX: Final[Ms] = 5_000
PROBE_MS: Final[Ms] = 10_000


@asynccontextmanager
async def listen(dsn: str, channel: str, heard: Callable[[str], None]) -> AsyncIterator[None]:
    """Call `heard` with every payload while the context is open, and with "" after a gap.

    The context opens when the first connection listens, or at once when there is no server.
    """
    begun = asyncio.Event()
    task = asyncio.create_task(_keep(dsn, channel, heard, begun), name=f"listen {channel}")
    try:
        await begun.wait()
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _keep(dsn: str, channel: str, heard: Callable[[str], None], begun: asyncio.Event) -> None:
    backoff_ms = BACKOFF_MS
    while True:
        try:
            await _once(dsn, channel, heard, begun)
            backoff_ms = BACKOFF_MS
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log_event(LOG, logging.WARNING, "listening stopped", channel=channel, why=error)
            begun.set()
            await asyncio.sleep(backoff_ms / 1_000)
            backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)


async def _once(dsn: str, channel: str, heard: Callable[[str], None], begun: asyncio.Event) -> None:
    """Listen until the connection ends."""
    connection = await asyncpg.connect(dsn, timeout=CONNECT_MS_MAX / 1_000)
    ended = asyncio.Event()

    def take(_connection: Any, _pid: int, _channel: str, payload: object) -> None:
        heard(str(payload))

    try:
        connection.add_termination_listener(lambda _: ended.set())
        await connection.add_listener(channel, take)
        begun.set()
        heard("")  # whatever was said before now was missed
        while not ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_MS / 1_000):
                    await ended.wait()
                    continue
            await connection.fetchval("SELECT 1", timeout=CONNECT_MS_MAX / 1_000)
    finally:
        connection.terminate()
