"""Base of hosts that do the same work again and again."""

import asyncio
from abc import ABC, abstractmethod

from schemas.units import Ms
from tunery.runtime.clock import Clock
from tunery.runtime.watchdog import REPORT_EVERY_MS, beat


class PeriodicHost(ABC):
    """Implements `Host` for a subclass that has a `name` and the work of one round."""

    name: str
    every_ms: Ms  # pause after each round

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Work until cancelled. Raises what a round raises."""
        self._ready.set()
        while True:
            beat("waiting")
            await self.work()
            await self._pause()

    async def _pause(self) -> None:
        """Report again and again: a pause may be longer than a host may be silent."""
        left_ms = self.every_ms
        while left_ms > 0:
            beat("waiting")
            step_ms = min(left_ms, REPORT_EVERY_MS)
            await self._clock.sleep(step_ms)
            left_ms -= step_ms

    @abstractmethod
    async def work(self) -> None:
        """Do the work of one round."""
