"""Sends what the meter has counted to the log: one command for each tenant every few seconds.

A file is deleted when all its commands are on the log. When that is in doubt they are sent again,
and their owner drops what it has: each says which file it comes from, and its position in it.
"""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from schemas.answers import USES_MAX, CountAnswers
from schemas.envelope import Source
from schemas.ids import reaction_id
from schemas.topics import ACCOUNT
from schemas.units import Ms
from services.engine.meter import AnswerMeter, number_of, uses_of
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import Clock
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.engine")
EVERY_MS: Final[Ms] = 5_000


class AnswerCounts:
    """Implements `Host`."""

    name = "answer counts"

    def __init__(self, meter: AnswerMeter, sender: Sender, clock: Clock) -> None:
        self._meter, self._sender, self._clock = meter, sender, clock
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Send until cancelled. Raises OSError."""
        self._ready.set()
        while True:
            beat("waiting")
            try:
                await self.send()
            except (Unavailable, AppendUnknown) as error:
                log_event(LOG, logging.WARNING, "answers.not_sent", why=error)
            await self._clock.sleep(EVERY_MS)

    async def send(self) -> None:
        """Send all that is counted so far. Raises Unavailable, AppendUnknown; OSError."""
        await asyncio.to_thread(self._meter.close_file)
        for path in self._meter.closed_files():
            for index, (tenant, command) in enumerate(commands_of(path)):
                beat("working")
                source = Source(f"answers.{self._meter.name}", 0, 0, number_of(path), index)
                command_id = reaction_id(source.stream, 0, 0, source.offset, index)
                await self._sender.send(
                    ACCOUNT, tenant, tenant, command, command_id=command_id, source=source
                )
            path.unlink()


def commands_of(path: Path) -> Iterator[tuple[str, CountAnswers]]:
    """The commands of a closed file with their tenants, always in the same order."""
    for tenant, uses in sorted(uses_of(path).items()):
        for start in range(0, len(uses), USES_MAX):
            yield tenant, CountAnswers(uses=tuple(uses[start : start + USES_MAX]))
