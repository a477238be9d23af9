"""Compares what servers have in memory with what is wanted, every few seconds."""

import asyncio
from typing import Final

from schemas.units import Ms
from services.engine.ports import ReconciledLoader
from tunery.runtime.clock import Clock
from tunery.runtime.watchdog import beat

EVERY_MS: Final[Ms] = 10_000


class EngineReconciliation:
    """Implements `Host`."""

    name = "reconciliation"

    def __init__(self, engine: ReconciledLoader, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Compare until cancelled."""
        self._ready.set()
        while True:
            beat("working")
            await asyncio.to_thread(self._engine.reconcile)
            beat("waiting")
            await self._clock.sleep(EVERY_MS)
