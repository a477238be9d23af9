"""LISTEN on its own connection, that comes back after an outage and says what it missed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import asyncpg

from schemas.units import Ms
from tunery.runtime.backoff import Backoff
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.tasks import KeptTask
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.work")
CONNECT_MS_MAX: Final = 3_000
BACKOFF: Final = Backoff(500, 5_000)
PROBE_MS: Final[Ms] = 10_000


@asynccontextmanager
async def listen(dsn: str, channel: str, on_notice: Callable[[str], None]) -> AsyncIterator[None]:
    """Call `on_notice` with every payload while the context is open, and with "" after a gap.

    The context opens when the first connection listens, or at once when there is no server.
    """
    begun = asyncio.Event()
    listening = partial(_listen_again, dsn, channel, on_notice, begun, SystemClock())
    kept = KeptTask(listening, f"listen {channel}")
    try:
        await begun.wait()  # set after one connection, or one failure: CONNECT_MS_MAX each
        yield
    finally:
        await kept.stop()


async def _listen_again(
    dsn: str,
    channel: str,
    on_notice: Callable[[str], None],
    begun: asyncio.Event,
    clock: Clock,
) -> None:
    failures = 0
    while True:
        beat("waiting")
        try:
            await _listen_once(dsn, channel, on_notice, begun)
            failures = 0
        except Exception as error:  # whatever it is: without this loop no notice arrives any more
            failures += 1
            log_event(
                LOG,
                logging.WARNING,
                "store.listening_interrupted",
                channel=channel,
                tries=failures,
                why=error,
            )
            begun.set()
            await clock.sleep(BACKOFF.delay_ms(failures))


async def _listen_once(
    dsn: str, channel: str, on_notice: Callable[[str], None], begun: asyncio.Event
) -> None:
    """Listen until the connection ends."""
    wait_s = CONNECT_MS_MAX / 1_000
    connection = await asyncpg.connect(dsn, timeout=wait_s, command_timeout=wait_s)
    ended = asyncio.Event()

    def take(_connection: Any, _pid: int, _channel: str, payload: object) -> None:
        on_notice(str(payload))

    try:
        connection.add_termination_listener(lambda _: ended.set())
        await connection.add_listener(channel, take)
        begun.set()
        on_notice("")  # whatever was said before now was missed
        while not ended.is_set():
            beat("waiting")
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_MS / 1_000):
                    await ended.wait()
                    continue
            await connection.fetchval("SELECT 1")
    finally:
        connection.terminate()
