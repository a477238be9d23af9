"""The host runs one processor after the other, and knows where silence may be judged."""

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from schemas.streams import Topic
from schemas.topics import TELEMETRY
from services.watcher import host as hosts
from services.watcher.host import WatcherHost
from services.watcher.processor import OnRecord
from services.watcher.settings import WatcherSettings
from services.watcher.watching import Watching
from tests.unit.services.watcher.telemetry import JOB
from tunery.platform.memory_servers import memory_servers
from tunery.platform.settings import LogSettings
from tunery.runtime.bus.partitioner import partition_of

PARTITION = partition_of(JOB.encode())


class Crashed(Exception):
    """What a processor ends with."""


class StandIn:
    """A processor without Kafka. position: up to which offset it has read `PARTITION`."""

    processors: ClassVar[list["StandIn"]] = []
    position = 0

    def __init__(self, settings: LogSettings, folder: Path) -> None:
        self.watches, self.peers, self.folder = dict[bytes, bytes](), dict[bytes, bytes](), folder
        self.is_started = self.is_stopped = self.has_crashed = False
        StandIn.processors.append(self)

    def on_records(self, topic: Topic, take: OnRecord) -> None:
        assert not self.is_started

    async def start(self) -> None:
        self.is_started = self.folder.is_dir()

    async def stop(self) -> None:
        self.is_stopped = True

    def check(self) -> None:
        if self.has_crashed:
            raise Crashed

    def partitions(self) -> frozenset[int]:
        return frozenset({PARTITION})

    async def next_offset(self, partition: int) -> int:
        assert partition == PARTITION
        return self.position


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "Processor", StandIn)
    monkeypatch.setattr(StandIn, "processors", [])


async def new_host() -> WatcherHost:
    servers = await memory_servers()
    await servers.log.send(TELEMETRY.name, JOB.encode(), b"{}")
    return WatcherHost(servers.runtime("watcher"), WatcherSettings(stuck_ms=1_000))


async def test_a_crash_ends_the_run_and_the_next_has_a_processor_of_its_own() -> None:
    host = await new_host()
    assert list(host.figures()) == []
    for number in (1, 2):
        running = asyncio.create_task(host.run())
        await host.ready()
        await asyncio.sleep(0.01)
        processor = StandIn.processors[-1]
        assert (len(StandIn.processors), processor.is_started, len(list(host.figures()))) == (
            number,
            True,
            1,
        )
        processor.has_crashed = True
        with pytest.raises(Crashed):
            await running
        assert processor.is_stopped
        assert not processor.folder.exists()


@pytest.mark.parametrize(("position", "readable"), [(0, set()), (1, {PARTITION})])
async def test_silence_is_judged_where_all_was_read(
    position: int, readable: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await new_host()
    looked = asyncio.Event()
    seen = set[frozenset[int]]()

    async def look(_: object, partitions: frozenset[int]) -> None:
        seen.add(partitions)
        looked.set()

    monkeypatch.setattr(Watching, "look", look)
    monkeypatch.setattr(StandIn, "position", position)
    running = asyncio.create_task(host.run())
    await asyncio.wait_for(looked.wait(), 60)
    running.cancel()
    await asyncio.wait([running])
    assert seen == {frozenset(readable)}
