"""Sends what the meter has counted to the log: one command for each tenant every few seconds."""

import asyncio
import logging
from typing import Final

from schemas.units import Ms
from services.engine.meter import AnswerMeter
from tunery.platform.answer_files import send_closed
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
        await send_closed(self._meter.folder, self._meter.closed_files(), self._sender)
