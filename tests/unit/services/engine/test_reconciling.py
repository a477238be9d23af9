"""Rounds of the comparison of what servers have with what is wanted."""

import asyncio
import threading

from schemas.units import Ms
from services.engine.reconciling import EngineReconciliation
from tests.unit.services.engine.memory_engine import MemoryEngine
from tunery.runtime.clock import SystemClock


class CountedRounds(MemoryEngine):
    """An engine that counts rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[threading.Thread] = []

    def reconcile(self) -> None:
        self.rounds.append(threading.current_thread())


class ThirdSleepEnds(SystemClock):
    """Sleeps twice without waiting."""

    def __init__(self) -> None:
        self.slept: list[Ms] = []

    async def sleep(self, duration: Ms) -> None:
        self.slept.append(duration)
        if len(self.slept) == 3:
            raise asyncio.CancelledError


async def test_a_round_every_few_seconds_beside_the_loop() -> None:
    engine, clock = CountedRounds(), ThirdSleepEnds()
    host = EngineReconciliation(engine, clock)
    running = asyncio.create_task(host.run())
    await host.ready()
    await asyncio.wait((running,))
    assert clock.slept == [EngineReconciliation.every_ms] * 3
    assert len(engine.rounds) == 3
    assert threading.main_thread() not in engine.rounds
