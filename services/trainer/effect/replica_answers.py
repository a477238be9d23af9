"""Sends the tokens that replicas of this node have counted to the log, also those of dead ones.

Each replica writes to its own folder, which later ones of its tenant use again: the numbers of
its files go on. So tokens outlive their process, its agent and its lease. A process may write what
it likes there: it counts for its own tenant alone, and stops the counts of no other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from schemas.units import Ms
from tunery.platform.answer_files import close_left, send_closed, spool_files
from tunery.runtime.bus.abstract import AppendUnknown, TooLarge, Unavailable
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import Clock
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger(__name__)
EVERY_MS: Final[Ms] = 5_000


class ReplicaAnswers:
    """Implements `Host`.

    folder: parent of the tenants' folders
    swept: returns when no process of an earlier agent is left, which might still write
    """

    name = "replica answers"

    def __init__(
        self, folder: Path, sender: Sender, clock: Clock, swept: Callable[[], Awaitable[None]]
    ) -> None:
        self._folder, self._sender, self._clock, self._swept = folder, sender, clock, swept
        self._used: set[Path] = set()
        self._ready = asyncio.Event()

    def take(self, tenant: str) -> Path:
        """A folder for one replica of a tenant. Raises OSError."""
        number = 0
        while (path := self._folder / tenant / str(number)) in self._used:
            number += 1
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._used.add(path)
        return path

    def give_back(self, path: Path) -> None:
        """Release a folder that no process writes to any more."""
        self._used.discard(path)

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Send until cancelled."""
        self._ready.set()
        swept = asyncio.ensure_future(self._swept())
        try:
            while not swept.done():
                beat("waiting")
                await asyncio.wait((swept,), timeout=EVERY_MS / 1_000)
            while True:
                beat("waiting")
                try:
                    await self.send()
                except (Unavailable, AppendUnknown) as error:
                    log_event(LOG, logging.WARNING, "answers.not_sent", why=error)
                await self._clock.sleep(EVERY_MS)
        finally:
            swept.cancel()

    async def send(self) -> None:
        """Send all that is closed. Raises Unavailable, AppendUnknown."""
        for path in sorted(self._folder.glob("*/*")):
            try:
                if path not in self._used:
                    close_left(path)
                closed = spool_files(path)[:-1]
                await send_closed(path, closed, self._sender, path.parent.name)
            except (OSError, ValueError, TooLarge) as error:
                log_event(LOG, logging.WARNING, "answers.unreadable", folder=path, why=error)
