"""Rounds of a periodic host, and the pauses between them."""

import asyncio

import pytest

from schemas.units import Ms
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.periodic import PeriodicHost
from tunery.runtime.watchdog import SILENCE_MS_MAX


class Rounds(PeriodicHost):
    name = "rounds"
    every_ms: Ms = 7

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(clock)
        self.count = 0

    async def work(self) -> None:
        self.count += 1
        if self.count == 3:
            raise OSError("the third round")


class Hourly(Rounds):
    every_ms: Ms = 3_600_000


class NoPause(SystemClock):
    def __init__(self) -> None:
        self.slept: list[Ms] = []

    async def sleep(self, duration: Ms) -> None:
        self.slept.append(duration)
        await asyncio.sleep(0)


async def test_each_round_is_followed_by_a_pause_and_an_error_ends_the_run() -> None:
    clock = NoPause()
    host = Rounds(clock)
    with pytest.raises(OSError, match="the third round"):
        await host.run()
    await host.ready()
    assert (host.count, clock.slept) == (3, [7, 7])


async def test_a_pause_of_an_hour_is_no_silence() -> None:
    clock = NoPause()
    with pytest.raises(OSError, match="the third round"):
        await Hourly(clock).run()
    assert sum(clock.slept) == 2 * Hourly.every_ms
    assert max(clock.slept) < SILENCE_MS_MAX
