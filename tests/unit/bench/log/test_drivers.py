"""Both clients are measured in turns, here over logs in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bench.log import drivers
from bench.log.owners import OwnerPorts
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.clock import SystemClock


async def test_each_figure_of_the_second_is_beside_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def both(_: Any) -> AsyncIterator[dict[str, OwnerPorts]]:
        yield {
            driver: OwnerPorts("bench", MemoryLog(), SystemClock(), MemoryBlobs())
            for driver in drivers.DRIVERS
        }

    monkeypatch.setattr(drivers, "both", both)
    settings: Any = None
    figures = await drivers.measure(settings, 2, 40, 20)
    for name, unit in (("append", "p50_ms"), ("pipelined", "per_s"), ("decisions", "per_s")):
        first, second = (figures[f"{driver}_{name}_{unit}"] for driver in drivers.DRIVERS)
        assert figures[f"confluent_{name}_ratio"] == second / first
