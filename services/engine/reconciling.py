"""Compares what servers have in memory with what is wanted, every few seconds."""

import asyncio

from schemas.units import Ms
from services.engine.ports import ReconciledLoader
from tunery.runtime.clock import Clock
from tunery.runtime.hosts.periodic import PeriodicHost
from tunery.runtime.watchdog import beat


class EngineReconciliation(PeriodicHost):
    name = "reconciliation"
    every_ms: Ms = 10_000

    def __init__(self, engine: ReconciledLoader, clock: Clock) -> None:
        super().__init__(clock)
        self._engine = engine

    async def work(self) -> None:
        beat("working")
        await asyncio.to_thread(self._engine.reconcile)
