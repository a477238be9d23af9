"""The log in memory: for tests and, with faults added, for the simulator."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from schemas.streams import Topic
from schemas.units import Ms
from tunery.runtime.bus.abstract import (
    Appended,
    Commit,
    OutOfRange,
    Record,
    Unavailable,
    check_size,
)
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.watchdog import next_item


@dataclass
class Partition:
    """Records from `start` on; a record's index is its offset minus `start`."""

    start: int = 0
    records: list[Record] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.records)


@dataclass
class _Group:
    members: dict[int, asyncio.Queue[frozenset[int]]] = field(default_factory=dict)
    joins: int = 0


class MemoryLog:
    """Implements `Log`. Never raises AppendUnknown."""

    def __init__(self, clock: Clock | None = None, session_timeout_ms: Ms = 1_000) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.clock: Clock = clock or SystemClock()
        self.topics: dict[str, list[Partition]] = {}
        # readers that wait, and for which partitions; woken in the same order in every run
        self.watchers: dict[str, dict[asyncio.Event, Mapping[int, int]]] = defaultdict(dict)
        self._groups: dict[tuple[str, str], _Group] = defaultdict(_Group)
        self._commits: dict[tuple[str, str], dict[int, Commit]] = defaultdict(dict)

    async def create(self, topics: Sequence[Topic], partitions: int) -> None:
        for topic in topics:
            count = topic.partitions or partitions
            self.topics.setdefault(topic.name, [Partition() for _ in range(count)])

    def partition(self, topic: str, partition: int) -> Partition:
        """Raises Unavailable for a topic that was never created."""
        if topic not in self.topics:
            raise Unavailable(f"there is no topic {topic}; create it from the catalogue")
        return self.topics[topic][partition]

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> Appended:
        """Append at once. Raises TooLarge, Unavailable (an unknown topic)."""
        check_size(value)
        target = self.partition(topic, partition)
        record = Record(partition, target.end, self.clock.now_ms(), key, value)
        target.records.append(record)
        for watcher, positions in self.watchers[topic].items():
            if partition in positions:
                watcher.set()
        return Appended(record.offset, record.timestamp)

    async def writer(self, topic: str, partition: int) -> "MemoryWriter":
        self.partition(topic, partition)
        return MemoryWriter(self, topic, partition)

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Appended:
        return self.put(topic, partition_of(key) if partition is None else partition, key, value)

    async def send_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        for key, value in records:
            await self.send(topic, key, value, partition)

    async def reader(self, topic: str, positions: Mapping[int, int]) -> "MemoryReader":
        for partition in positions:
            self.partition(topic, partition)
        return MemoryReader(self, topic, positions)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        target = self.partition(topic, partition)
        return target.start, target.end

    async def ends(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        return {partition: self.partition(topic, partition).end for partition in partitions}

    async def trim(self, topic: str, partition: int, before: int) -> None:
        target = self.partition(topic, partition)
        count = max(0, min(before, target.end) - target.start)
        del target.records[:count]
        target.start += count

    async def committed(self, group: str, topic: str) -> Mapping[int, Commit]:
        return dict(self._commits[group, topic])

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        self._commits[group, topic].update(commits)

    async def members(self, group: str) -> int:
        return sum(
            len(joined.members) for (name, _), joined in self._groups.items() if name == group
        )

    async def recreate(self, topic: Topic, partitions: int) -> None:
        self.topics[topic.name] = [Partition() for _ in range(partitions)]

    @asynccontextmanager
    async def membership(
        self, group: str, topic: str
    ) -> AsyncIterator[AsyncIterator[frozenset[int]]]:
        """Join the group; each change of its members gives all of them their partitions anew."""
        joined = self._groups[group, topic]
        joined.joins += 1
        member, queue = joined.joins, asyncio.Queue[frozenset[int]]()
        joined.members[member] = queue
        self._assign(joined, topic)
        try:
            yield _changes(queue)
        finally:
            del joined.members[member]
            self._assign(joined, topic)

    def _assign(self, group: _Group, topic: str) -> None:
        members = sorted(group.members)
        for rank, member in enumerate(members):
            owned = range(rank, len(self.topics[topic]), len(members))
            group.members[member].put_nowait(frozenset(owned))

    async def close(self) -> None:
        """Nothing to free."""


async def _changes(queue: asyncio.Queue[frozenset[int]]) -> AsyncIterator[frozenset[int]]:
    while True:
        yield await next_item(queue)


class MemoryWriter:
    """Implements `Writer`."""

    def __init__(self, log: MemoryLog, topic: str, partition: int) -> None:
        self._log, self._topic, self._partition = log, topic, partition

    async def submit(self, key: bytes, value: bytes) -> Awaitable[Appended]:
        result: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        result.set_result(self._log.put(self._topic, self._partition, key, value))
        return result

    async def append(self, key: bytes, value: bytes) -> Appended:
        return await (await self.submit(key, value))

    async def close(self) -> None:
        """Nothing to free."""


class MemoryReader:
    """Implements `Reader`."""

    def __init__(self, log: MemoryLog, topic: str, positions: Mapping[int, int]) -> None:
        self._log, self._topic, self._positions = log, topic, dict(positions)
        self._watch = asyncio.Event()
        log.watchers[topic][self._watch] = self._positions

    async def poll(self, wait_ms: Ms, records_max: int) -> Sequence[Record]:
        records = self._take(records_max)
        if not records and wait_ms > 0:
            over = asyncio.get_running_loop().call_later(wait_ms / 1_000, self._watch.set)
            try:  # cheaper than `asyncio.timeout`: simulated processes poll most of the time
                await self._watch.wait()
            finally:
                over.cancel()
            return self._take(records_max) or ()
        return records

    def _take(self, records_max: int) -> list[Record]:
        self._watch.clear()
        batch: list[Record] = []
        partitions = self._log.topics[self._topic]
        for partition, position in self._positions.items():
            source = partitions[partition]
            first, count = position - source.start, len(source.records)
            if first == count:
                continue
            if not 0 <= first < count:
                raise OutOfRange(self._topic, partition, position, source.start, source.end)
            records = source.records[first : first + records_max - len(batch)]
            self._positions[partition] = position + len(records)
            batch.extend(records)
        return batch

    async def close(self) -> None:
        self._log.watchers[self._topic].pop(self._watch, None)
