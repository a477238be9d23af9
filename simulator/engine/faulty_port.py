"""One process's access to the log, which may be paused, slow, or closed at any await."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any, Final

from schemas.streams import Topic
from schemas.units import Ms
from simulator.engine.broker import Broker
from simulator.engine.faults import SESSION_MS
from simulator.engine.virtual_loop import Pause, virtual_loop
from tunery.runtime.bus.abstract import (
    Appended,
    AppendUnknown,
    Commit,
    OutOfRange,
    Record,
    check_size,
)
from tunery.runtime.bus.memory import MemoryReader
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.watchdog import next_item, watched_host

SLOW_MS: Final[Ms] = 700
FETCHED_MAX: Final = 12  # records at once; a fetch ends anywhere


class FaultyPort:
    """Implements `Log` and `Clock`."""

    def __init__(self, broker: Broker, member: str, rng: Random) -> None:
        self.member, self.session_timeout_ms = member, SESSION_MS
        self.broker, self.rng = broker, rng
        self._loop, self._joins = virtual_loop(), count(1)
        self.alive = True
        self.slow = False
        self.on_crash: Callable[[], None] = lambda: None
        self.crash_after: int | None = None  # awaits from now until the process dies
        self.cancel_after: int | None = None  # awaits from now until a task is cancelled
        self.members: set[str] = set()  # of groups that the process follows, as it believes
        self._running = asyncio.Event()
        self._running.set()
        self._asleep_since: Ms | None = None  # by virtual time
        self._slept_ms: Ms = 0

    def monotonic_ms(self) -> Ms:
        """Return the monotonic time of this machine, which stops while the machine sleeps."""
        awake_until = self._asleep_since
        now_ms = self.broker.clock.monotonic_ms() if awake_until is None else awake_until
        return now_ms - self._slept_ms

    def now_ms(self) -> Ms:
        return self.broker.clock.true_ms()

    async def sleep(self, ms: Ms) -> None:
        await asyncio.sleep(ms / 1_000)
        await self.pass_through(0)

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        if self._asleep_since is None:
            self._running.set()

    def fall_asleep(self) -> bool:
        """Its machine sleeps, and its monotonic clock stands. False: it sleeps already."""
        if self._asleep_since is not None:
            return False
        self.pause()
        self._asleep_since = self.broker.clock.monotonic_ms()
        return True

    def wake_up(self) -> None:
        """Its machine continues, from the monotonic time at which it fell asleep."""
        if self._asleep_since is not None:
            self._slept_ms += self.broker.clock.monotonic_ms() - self._asleep_since
            self._asleep_since = None
            self.resume()

    async def pass_through(self, latency_ms: float = 4) -> None:
        """Called around every await of a process, before and after its effect."""
        if self.crash_after is not None or self.cancel_after is not None:
            self._count_down()
        if latency_ms:
            await Pause(self._loop, self.rng.uniform(0.1, latency_ms) / 1_000)
        while not self.alive or not self._running.is_set():
            if self.alive:
                await self._running.wait()
            else:
                await self._loop.create_future()  # until it is cancelled

    def _count_down(self) -> None:
        """A crash or a stray cancellation comes one await nearer."""
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after <= 0 and self.alive:
                self.alive = False
                self.on_crash()
        if self.cancel_after is not None:
            self.cancel_after -= 1
            if self.cancel_after <= 0:
                self._cancel_task()

    def _cancel_task(self) -> None:
        """Cancel the current task without reason, if it belongs to a watched host."""
        task, host = asyncio.current_task(), watched_host()
        if task is not None and host is not None:
            self.cancel_after = None
            self.broker.tally.add("stray cancellation")
            self.broker.tally.add(f"stray cancellation of {host}")
            self.broker.trace(f"{self.member}: {task.get_name()!r} is cancelled by mistake")
            task.cancel()

    async def reach(self) -> None:
        """A request to the broker. Raises Unavailable.

        Reads are answered at once; the response to a change may arrive much later.
        """
        await self.pass_through()
        self.broker.must_answer()

    # --- Log --------------------------------------------------------------------------------------

    async def create(self, topics: Sequence[Topic], partitions: int) -> None:
        await self.broker.memory.create(topics, partitions)

    async def writer(self, topic: str, partition: int) -> "FaultyWriter":
        await self.reach()
        return FaultyWriter(self, topic, partition)

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Appended:
        where = partition_of(key) if partition is None else partition
        check_size(value)
        await self.reach()
        appended = await self.broker.append(self.member, topic, where, key, value)
        await self.pass_through()
        self.broker.expose(topic, where, appended.offset + 1)
        return appended

    async def send_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        for key, value in records:  # each may fail or be the last before a crash
            await self.send(topic, key, value, partition)

    async def reader(self, topic: str, positions: Mapping[int, int]) -> "FaultyReader":
        await self.reach()
        return FaultyReader(self, topic, await self.broker.memory.reader(topic, positions))

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        await self.reach()
        bounds = await self.broker.bounds(topic, partition)
        self.broker.expose(topic, partition, bounds[1])
        return bounds

    async def ends(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        await self.reach()
        ends = {at: (await self.broker.bounds(topic, at))[1] for at in partitions}
        for partition, end in ends.items():
            self.broker.expose(topic, partition, end)
        return ends

    async def trim(self, topic: str, partition: int, before: int) -> None:
        await self.reach()
        self.broker.on_trim(topic, partition, before)
        await self.broker.memory.trim(topic, partition, before)
        await self.pass_through()

    async def committed(self, group: str, topic: str) -> Mapping[int, Commit]:
        await self.reach()
        return await self.broker.memory.committed(group, topic)

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        await self.reach()
        await self.broker.memory.commit(group, topic, commits)
        await self.pass_through()

    @asynccontextmanager
    async def membership(
        self, group: str, topic: str
    ) -> AsyncIterator[AsyncIterator[frozenset[int]]]:
        """The partitions of this process, as often as they change, until the caller leaves."""
        await self.reach()
        membership, member = (group, topic), f"{self.member}/{next(self._joins)}"
        queue = self.broker.join(membership, member)
        self.members.add(member)
        try:
            yield self._changes(queue)
        finally:
            self.members.discard(member)
            if self.alive:
                self.broker.leave(membership, member)

    async def _changes(self, queue: asyncio.Queue[frozenset[int]]) -> AsyncIterator[frozenset[int]]:
        while True:
            share = await next_item(queue)
            await self.pass_through()
            yield share

    async def close(self) -> None:
        """Nothing to free."""


class FaultyWriter:
    """Appends in order with several records in flight, like the real producer."""

    def __init__(self, port: FaultyPort, topic: str, partition: int) -> None:
        self._port, self._broker, self._topic, self._partition = port, port.broker, topic, partition
        self._last: asyncio.Future[Any] | None = None
        self._broken = False

    async def submit(self, key: bytes, value: bytes) -> Awaitable[Appended]:
        check_size(value)
        await self._port.pass_through(1)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Appended] = loop.create_future()
        outcome.add_done_callback(_retrieve)
        # The task is the network's, not the process's: it continues when the process is dead.
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
        self._broker.on_flight(self._topic)
        await asyncio.sleep(latency_s)
        try:
            if self._broken:
                raise AppendUnknown("the writer lost a record before")
            appended = await self._broker.append(
                self._port.member, self._topic, self._partition, key, value
            )
        except AppendUnknown as unknown:
            # Usually later records wait for ever behind a lost one; sometimes they overtake it.
            self._broken = self._broker.rng.random() < 0.7
            if not outcome.done():
                outcome.set_exception(unknown)
        else:
            self._broker.expose(self._topic, self._partition, appended.offset + 1)
            if not outcome.done():
                outcome.set_result(appended)

    async def append(self, key: bytes, value: bytes) -> Appended:
        appended = await (await self.submit(key, value))
        await self._port.pass_through(1)
        return appended

    async def close(self) -> None:
        """Nothing to free; appends in flight continue."""


def _retrieve(outcome: asyncio.Future[Appended]) -> None:
    if not outcome.cancelled():
        outcome.exception()


class FaultyReader:
    def __init__(self, port: FaultyPort, topic: str, reader: MemoryReader) -> None:
        self._port, self._topic, self._reader = port, topic, reader

    async def poll(self, wait_ms: Ms, records_max: int) -> Sequence[Record]:
        """Some of the next records, like a real fetch. Raises OutOfRange, Unavailable."""
        port = self._port
        await port.pass_through(0)
        records_max = min(records_max, port.rng.randint(1, FETCHED_MAX))
        if port.slow:
            await asyncio.sleep(SLOW_MS / 1_000)
            records_max = 1
        port.broker.must_answer()
        try:
            records = await self._reader.poll(wait_ms, records_max)
        except OutOfRange:
            await port.pass_through(1)
            raise
        for record in records:
            port.broker.expose(self._topic, record.partition, record.offset + 1)
        await port.pass_through(1)
        return records

    async def close(self) -> None:
        await self._reader.close()
