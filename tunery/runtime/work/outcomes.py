"""Waits until the decision on a command is in the read model. One listener for all requests."""

import asyncio
from contextlib import suppress
from typing import Final

from schemas.units import Ms
from tunery.runtime.bundle import Runtime
from tunery.runtime.work.abstract import OUTCOMES_CHANNEL, Outcome

POLL_MS: Final[Ms] = 500  # notices are a hint; the row is the truth
WAITING_MAX: Final = 10_000


class TooManyWaiting(Exception):
    """WAITING_MAX commands are waited for already; answer 503."""


class Outcomes:
    """Implements `Host`. A service that waits for outcomes runs it beside its Projector."""

    name = "outcomes"

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        async with self._store.listen(OUTCOMES_CHANNEL, self._heard):
            self._ready.set()
            await asyncio.Event().wait()

    def _heard(self, command_id: str) -> None:
        """An empty notice means a gap: everybody looks."""
        woken = [command_id] if command_id else list(self._waiting)
        for name in woken:
            for event in self._waiting.get(name, ()):
                event.set()

    async def wait(self, command_id: str, wait_ms: Ms) -> Outcome | None:
        """The outcome, or None when there is none after `wait_ms`.

        May be called after the command was sent. Raises StoreUnavailable, TooManyWaiting.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise TooManyWaiting(f"{WAITING_MAX} commands are waited for already")
        event = asyncio.Event()
        self._waiting.setdefault(command_id, []).append(event)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1_000):
                    return await self._look(command_id, event)
            return None
        finally:
            self._forget(command_id, event)

    async def _look(self, command_id: str, event: asyncio.Event) -> Outcome:
        """Look first, then after each notice: what came before the wait is in the table."""
        while True:
            event.clear()
            found = await self._store.outcome(command_id)
            if found is not None:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_MS / 1_000):
                    await event.wait()

    def _forget(self, command_id: str, event: asyncio.Event) -> None:
        events = self._waiting[command_id]
        events.remove(event)
        if not events:
            del self._waiting[command_id]
