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
from tunery.runtime.hosts.periodic import PeriodicHost
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.engine")


class AnswerCounts(PeriodicHost):
    name = "answer counts"
    every_ms: Ms = 5_000

    def __init__(self, meter: AnswerMeter, sender: Sender, clock: Clock) -> None:
        super().__init__(clock)
        self._meter, self._sender = meter, sender

    async def work(self) -> None:
        """Send what is counted; while the log is away it is kept. Raises OSError."""
        try:
            await self.send()
        except (Unavailable, AppendUnknown) as error:
            log_event(LOG, logging.WARNING, "answers.not_sent", why=error)

    async def send(self) -> None:
        """Send all that is counted so far. Raises Unavailable, AppendUnknown; OSError."""
        await asyncio.to_thread(self._meter.close_file)
        await send_closed(self._meter.folder, self._meter.closed_files(), self._sender)
