"""Runs the stream processor, and looks for silence where everything was read."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from schemas.topics import ENDS, SPEEDS, TELEMETRY
from schemas.units import Ms
from services.watcher.processor import Processor
from services.watcher.settings import WatcherSettings
from services.watcher.watching import Watching
from tunery.platform.ports import Runtime
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.telemetry.figures import StateValue
from tunery.runtime.watchdog import beat

LOOK_MS_MAX: Final[Ms] = 5_000
STOP_S_MAX: Final = 3.0


class WatcherHost:
    """Implements `Host`. A processor that has crashed is thrown away, and a fresh one started."""

    name = "watcher"

    def __init__(self, runtime: Runtime, settings: WatcherSettings) -> None:
        self._runtime, self._settings = runtime, settings
        self._watching: Watching | None = None
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Process telemetry until cancelled. Raises what the processor crashed with."""
        with tempfile.TemporaryDirectory(prefix="tunery-watcher-") as folder:
            processor = Processor(self._runtime.settings, Path(folder))
            watching = Watching(self._runtime, self._settings, processor.watches, processor.peers)
            processor.on_records(TELEMETRY, watching.take)
            processor.on_records(ENDS, watching.take_end)
            processor.on_records(SPEEDS, watching.take_speed)
            try:
                await processor.start()
                self._watching = watching
                self._ready.set()
                await self._look(processor, watching)
            finally:
                self._watching = None
                async with asyncio.timeout(STOP_S_MAX):
                    await processor.stop()

    def figures(self) -> Iterator[StateValue]:
        """Yield the current metrics."""
        if self._watching is not None:
            yield from self._watching.figures()

    async def _look(self, processor: Processor, watching: Watching) -> None:
        """Look for silence again and again. Raises what the processor crashed with."""
        pause_ms = min(LOOK_MS_MAX, self._settings.stuck_ms // 4)
        while True:
            beat("waiting")
            await self._runtime.clock.sleep(pause_ms)
            beat("working")
            processor.check()
            await watching.look(await self._readable(processor))

    async def _readable(self, processor: Processor) -> frozenset[int]:
        """Partitions that were read to their ends; none while Kafka does not answer."""
        readable = set[int]()
        try:
            async with asyncio.timeout(LOOK_MS_MAX / 1_000):
                for partition in processor.partitions():
                    _, end = await self._runtime.log.bounds(TELEMETRY.name, partition)
                    if await processor.next_offset(partition) == end:
                        readable.add(partition)
        except (Unavailable, TimeoutError):
            return frozenset()
        return frozenset(readable)
