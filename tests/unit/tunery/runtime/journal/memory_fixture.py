"""A small world for the hosts: the memory log, the toy streams, and a way to run them a while."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from examples.first_stream import SEATS, SEATS_AGGREGATE
from schemas.envelope import Entry, Envelope
from schemas.streams import PARTITIONS
from schemas.topics import SNAPSHOTS
from simulator.event_core.streams import STREAMS
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.codec import codec_of, decode_record
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.levels import LogLevels

WAIT_S = 180
#: bytes that a foreign client may have written instead of a record
GARBAGE = (b"", b"not json", b'{"id":"\xff"}', b'{"x":' + b"[" * 9_000 + b"]" * 9_000 + b"}")
QUICK = HostLimits(idle_wait_ms=20, tick_every_ms=50, retry_ms=10, back_off_ms_max=40)


@dataclass
class World:
    log: MemoryLog = field(default_factory=lambda: MemoryLog(session_timeout_ms=50))
    clock: Clock = field(default_factory=SystemClock)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    name: str = "toy"
    keys: SenderKeys = UNSIGNED
    levels: LogLevels = field(default_factory=LogLevels)

    async def create(self) -> "World":
        topics = [
            topic for stream in STREAMS.values() for topic in (stream.commands, stream.journal)
        ]
        await self.log.create([*topics, SNAPSHOTS], PARTITIONS)
        return self

    @property
    def sender(self) -> Sender:
        return Sender(self.log, STREAMS)

    def host(self, owner: str = "a", limits: HostLimits = QUICK) -> AggregateHost[Any]:
        return AggregateHost(self, SEATS_AGGREGATE, owner=owner, limits=limits)

    def entries(self, key: str, stream: Any = SEATS) -> list[tuple[Entry, tuple[Any, ...]]]:
        """Entries of the key's partition, whether they count or not."""
        partition = self.log.topics[stream.journal.name][partition_of(key.encode())]
        parsed = [decode_record(record.value) for record in partition.records]
        codec = codec_of(stream)
        return [(entry, codec.events(entry)) for entry in parsed if isinstance(entry, Entry)]

    def events(self, key: str, stream: Any = SEATS) -> list[Any]:
        return [event for _, events in self.entries(key, stream) for event in events]

    async def decided(self, key: str, count: int, stream: Any = SEATS) -> list[Any]:
        """Wait until the key's partition has `count` entries; their events."""
        await until(lambda: len(self.entries(key, stream)) >= count)
        return self.events(key, stream)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  # conditions look at many things
            await asyncio.sleep(0.005)


def envelope(key: str, body: Any, command_id: str, **rest: Any) -> bytes:
    raw = msgspec.Raw(msgspec.json.encode(body))
    return msgspec.json.encode(Envelope(id=command_id, key=key, tenant=key, body=raw, **rest))
