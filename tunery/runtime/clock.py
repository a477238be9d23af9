"""Time as a port. Decisions never see it: their time is the broker's, `at` in the log."""

import asyncio
import time
from typing import Protocol

from schemas.units import Ms


class Clock(Protocol):
    def monotonic_ms(self) -> Ms:
        """Elapsed time that never jumps; the start is arbitrary."""

    def now_ms(self) -> Ms:
        """Wall clock, for timestamps towards the outside; never for money, order or leases."""

    async def sleep(self, ms: Ms) -> None: ...


class SystemClock:
    def monotonic_ms(self) -> Ms:
        return time.monotonic_ns() // 1_000_000

    def now_ms(self) -> Ms:
        return time.time_ns() // 1_000_000

    async def sleep(self, ms: Ms) -> None:
        await asyncio.sleep(ms / 1_000)
