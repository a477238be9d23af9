"""The log with faults, and processes that see it: each through its own door, which may close.

The broker outlives processes: what was on its way when a process died may still arrive.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from schemas.topics import Topic
from schemas.units import Ms
from tunery.runtime.bus.abstract import Appended, AppendUnknown, Commit, OutOfRange, Record
from tunery.runtime.bus.memory import MemoryLog, MemoryReader
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.testing.faults import APPEND_MS_MAX, SESSION_MS, Faults, Tally

EPOCH_MS = 1_700_000_000_000
LATE_MS_MAX = 12_000
BROADCAST_MS_MAX = 300


class BrokerClock:
    """Virtual time, seen by a broker whose clock may jump back."""

    def __init__(self) -> None:
        self.skew_ms = 0

    def now_ms(self) -> Ms:
        return EPOCH_MS + self.monotonic_ms() + self.skew_ms

    def monotonic_ms(self) -> Ms:
        return int(asyncio.get_running_loop().time() * 1_000)

    async def sleep(self, ms: Ms) -> None:
        await asyncio.sleep(ms / 1_000)


class Broker:
    """`active`: partitions in use by topic; the others are not even assigned, to save work."""

    def __init__(
        self, rng: Random, faults: Faults, tally: Tally, active: Mapping[str, frozenset[int]]
    ) -> None:
        self.clock = BrokerClock()
        self.memory = MemoryLog(self.clock, SESSION_MS)
        self.rng, self.faults, self.tally, self.active = rng, faults, tally, active
        self.healed = False
        self.groups: dict[tuple[str, str], dict[str, asyncio.Queue[frozenset[int]]]] = defaultdict(
            dict
        )
        self._told_ms: dict[tuple[tuple[str, str], str], float] = {}
        self.trace: Callable[[str], None] = lambda _: None
        self.on_trim: Callable[[str, int, int], None] = lambda *_: None
        # every record ever written, trimmed or not, by topic and partition
        self.history: dict[tuple[str, int], list[Record]] = defaultdict(list)

    def chance(self, per_cent: int) -> bool:
        return not self.healed and self.rng.random() * 100 < per_cent

    def later(self, ms: float, action: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(ms / 1_000, action)

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> Appended:
        appended = self.memory.put(topic, partition, key, value)
        self.history[topic, partition].append(Record(partition, *appended, key, value))
        return appended

    async def append(
        self, who: str, topic: str, partition: int, key: bytes, value: bytes
    ) -> Appended:
        """One append over a bad network. Raises AppendUnknown."""

        def put() -> Appended:
            appended = self.put(topic, partition, key, value)
            self.trace(f"{who} wrote {topic}/{partition}@{appended.offset} {value[:150]!r}")
            return appended

        late_ms = self.rng.uniform(APPEND_MS_MAX / 2, LATE_MS_MAX)
        if self.chance(self.faults.lost):
            self.tally.add("append lost")
        elif self.chance(self.faults.late):
            self.tally.add("append late")
            self.later(late_ms, put)
        elif self.chance(self.faults.unanswered):
            self.tally.add("append unanswered")
            put()
        else:
            appended = put()
            if self.chance(self.faults.doubled):
                self.tally.add("append doubled")
                self.later(late_ms, put)
            return appended
        self.trace(f"{who} does not know about {topic}/{partition}")
        await asyncio.sleep(APPEND_MS_MAX / 1_000)
        raise AppendUnknown("no answer in time")

    # --- groups -----------------------------------------------------------------------------------

    def join(self, group: tuple[str, str], member: str) -> asyncio.Queue[frozenset[int]]:
        queue: asyncio.Queue[frozenset[int]] = asyncio.Queue()
        self.groups[group][member] = queue
        self.assign(group)
        return queue

    def leave(self, group: tuple[str, str], member: str) -> None:
        if self.groups[group].pop(member, None) is not None:
            self.assign(group)

    def assign(self, group: tuple[str, str]) -> None:
        """Tell every member its share, each after a while of its own."""
        members, partitions = sorted(self.groups[group]), sorted(self.active[group[1]])
        for rank, member in enumerate(members):
            self.tell(group, member, frozenset(partitions[rank :: len(members)]))

    def tell(self, group: tuple[str, str], member: str, share: frozenset[int]) -> None:
        """What a member is told reaches it in order."""
        queue = self.groups[group].get(member)
        if queue is not None:
            now_ms = self.clock.monotonic_ms()
            at_ms = now_ms + self.rng.uniform(1, BROADCAST_MS_MAX)
            at_ms = max(at_ms, self._told_ms.get((group, member), 0) + 1)
            self._told_ms[group, member] = at_ms
            self.later(at_ms - now_ms, lambda: queue.put_nowait(share))

    def lose_tail(self, topic: str, partition: int, count: int) -> int:
        """Forget the last records of a partition; how many there were."""
        place = self.memory.topics[topic][partition]
        lost = min(count, len(place.records))
        if lost:
            del place.records[-lost:]
            del self.history[topic, partition][-lost:]
        return lost


class Door:
    """One process's way to the log: a `Log` and a `Clock` that can be paused, and die."""

    def __init__(self, broker: Broker, member: str, rng: Random) -> None:
        self.member, self.session_timeout_ms = member, SESSION_MS
        self.alive = True
        self.on_crash: Callable[[], None] = lambda: None
        self.crash_after: int | None = None  # awaits from now until the process dies
        self._broker, self._rng = broker, rng
        self._running = asyncio.Event()
        self._running.set()

    def monotonic_ms(self) -> Ms:
        return self._broker.clock.monotonic_ms()

    def now_ms(self) -> Ms:
        return EPOCH_MS + self.monotonic_ms()

    async def sleep(self, ms: Ms) -> None:
        await asyncio.sleep(ms / 1_000)
        await self.pass_through(0)

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    async def pass_through(self, latency_ms: float = 4) -> None:
        """Every await of a process goes through here, before and after it has its effect."""
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after <= 0 and self.alive:
                self.alive = False
                self.on_crash()
        if latency_ms:
            await asyncio.sleep(self._rng.uniform(0.1, latency_ms) / 1_000)
        while not self.alive or not self._running.is_set():
            if self.alive:
                await self._running.wait()
            else:
                await asyncio.get_running_loop().create_future()  # until it is cancelled

    # --- Log --------------------------------------------------------------------------------------

    async def create(self, topics: Sequence[Topic], partitions: int) -> None:
        await self._broker.memory.create(topics, partitions)

    async def writer(self, topic: str, partition: int) -> "DoorWriter":
        await self.pass_through()
        return DoorWriter(self, self._broker, topic, partition)

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Appended:
        where = partition_of(key) if partition is None else partition
        await self.pass_through()
        appended = await self._broker.append(self.member, topic, where, key, value)
        await self.pass_through()
        return appended

    async def reader(self, topic: str, positions: Mapping[int, int]) -> "DoorReader":
        await self.pass_through()
        return DoorReader(self, await self._broker.memory.reader(topic, positions))

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        await self.pass_through()
        bounds = await self._broker.memory.bounds(topic, partition)
        await self.pass_through()
        return bounds

    async def trim(self, topic: str, partition: int, before: int) -> None:
        await self.pass_through()
        self._broker.on_trim(topic, partition, before)
        await self._broker.memory.trim(topic, partition, before)
        await self.pass_through()

    async def committed(self, group: str, topic: str) -> Mapping[int, Commit]:
        await self.pass_through()
        return await self._broker.memory.committed(group, topic)

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        await self.pass_through()
        await self._broker.memory.commit(group, topic, commits)
        await self.pass_through()

    @asynccontextmanager
    async def membership(
        self, group: str, topic: str
    ) -> AsyncIterator[AsyncIterator[frozenset[int]]]:
        await self.pass_through()
        place = (group, topic)
        queue = self._broker.join(place, self.member)
        try:
            yield self._changes(queue)
        finally:
            if self.alive:
                self._broker.leave(place, self.member)

    async def _changes(self, queue: asyncio.Queue[frozenset[int]]) -> AsyncIterator[frozenset[int]]:
        while True:
            share = await queue.get()
            await self.pass_through()
            yield share

    async def close(self) -> None:
        """Nothing to free."""


class DoorWriter:
    """In order, with several in flight, as the real producer: one record after the other."""

    def __init__(self, door: Door, broker: Broker, topic: str, partition: int) -> None:
        self._door, self._broker, self._topic, self._partition = door, broker, topic, partition
        self._last: asyncio.Future[Any] | None = None
        self._broken = False

    async def submit(self, key: bytes, value: bytes) -> Awaitable[Appended]:
        await self._door.pass_through(1)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Appended] = loop.create_future()
        outcome.add_done_callback(_retrieve)
        # The task is the network's, not the process's: it goes on when the process is dead.
        self._last = loop.create_task(self._deliver(self._last, key, value, outcome))
        return outcome

    async def _deliver(
        self,
        before: asyncio.Future[Any] | None,
        key: bytes,
        value: bytes,
        outcome: asyncio.Future[Appended],
    ) -> None:
        latency_s = self._broker.rng.uniform(0.1, 3) / 1_000
        if before is not None:
            await asyncio.wait([before])
        await asyncio.sleep(latency_s)
        try:
            if self._broken:
                raise AppendUnknown("the writer lost a record before")
            appended = await self._broker.append(
                self._door.member, self._topic, self._partition, key, value
            )
        except AppendUnknown as unknown:
            # Mostly later records wait behind a lost one for ever; sometimes they overtake it.
            self._broken = self._broker.rng.random() < 0.7
            if not outcome.done():
                outcome.set_exception(unknown)
        else:
            if not outcome.done():
                outcome.set_result(appended)

    async def append(self, key: bytes, value: bytes) -> Appended:
        appended = await (await self.submit(key, value))
        await self._door.pass_through(1)
        return appended

    async def close(self) -> None:
        """What is in flight is in flight."""


def _retrieve(outcome: asyncio.Future[Appended]) -> None:
    if not outcome.cancelled():
        outcome.exception()


class DoorReader:
    def __init__(self, door: Door, reader: MemoryReader) -> None:
        self._door, self._reader = door, reader

    async def poll(self, wait_ms: Ms, records_max: int) -> Sequence[Record]:
        await self._door.pass_through(1)
        try:
            records = await self._reader.poll(wait_ms, records_max)
        except OutOfRange:
            await self._door.pass_through(1)
            raise
        await self._door.pass_through(1)
        return records

    async def close(self) -> None:
        await self._reader.close()
