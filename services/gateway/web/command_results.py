"""Waits for the result of a command: its row in `command_results`, announced by NOTIFY."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from schemas.units import Ms
from services.gateway.timeouts import in_time
from tunery.runtime.store.abstract import (
    COMMAND_RESULTS_CHANNEL,
    CommandResult,
    Store,
    StoreUnavailable,
)
from tunery.runtime.watchdog import wait_forever

POLL_MS: Final[Ms] = 500  # look again after this, in case a notice was lost
AWAY_MS_MAX: Final[Ms] = 2_500  # after this long without the store, waiting ends
WAITERS_MAX: Final = 10_000


class TooManyWaiting(Exception):
    """More requests wait for decisions than this process allows."""


class CommandResults:
    """Implements `Host`. `expect` before the command is sent, `wait` after it."""

    name = "command_results"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, asyncio.Event] = {}
        self._listening = asyncio.Event()

    async def run(self) -> None:
        async with self._store.listen(COMMAND_RESULTS_CHANNEL, self._wake):
            self._listening.set()
            await wait_forever()

    async def ready(self) -> None:
        await self._listening.wait()

    @contextmanager
    def expect(self, command_id: str) -> Iterator[None]:
        """Raises TooManyWaiting."""
        if len(self._waiting) >= WAITERS_MAX:
            raise TooManyWaiting
        self._waiting[command_id] = asyncio.Event()
        try:
            yield
        finally:
            del self._waiting[command_id]

    async def wait(self, command_id: str, wait_ms: Ms) -> CommandResult | None:
        """The result, or None when there is none after `wait_ms`, or when the store has been away
        for AWAY_MS_MAX: it may still come.
        """
        announced, clock = self._waiting[command_id], asyncio.get_running_loop().time
        away_since: float | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1_000):
                while True:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(POLL_MS / 1_000):
                            await announced.wait()
                    announced.clear()
                    asked = clock()
                    try:
                        result = await self._read(command_id)
                    except StoreUnavailable:
                        away_since = away_since or asked
                        if clock() - away_since >= AWAY_MS_MAX / 1_000:
                            return None
                        continue
                    if result is not None:
                        return result
                    away_since = None
        return None

    async def _read(self, command_id: str) -> CommandResult | None:
        """Raises StoreUnavailable after AWAY_MS_MAX at the latest."""
        try:
            return await in_time(self._store.command_result(command_id), AWAY_MS_MAX)
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer in {AWAY_MS_MAX} ms") from error

    def _wake(self, notice: str) -> None:
        """Wake the waiter of a command; all waiters by an empty notice, which means a gap."""
        if notice == "":
            for event in self._waiting.values():
                event.set()
        elif notice in self._waiting:
            self._waiting[notice].set()
