"""The log with faults. It outlives processes: appends in flight at a crash may still arrive."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random

from schemas.streams import PARTITIONS
from schemas.units import Ms
from simulator.engine.faults import APPEND_MS_MAX, SESSION_MS, Faults, FaultTally
from simulator.engine.virtual_loop import virtual_loop
from tunery.runtime.bus.abstract import Appended, AppendUnknown, Record, Unavailable
from tunery.runtime.bus.memory import MemoryLog, Partition

EPOCH_MS = 1_700_000_000_000
LATE_MS_MAX = 9_000
BROADCAST_MS_MAX = 300


class BrokerClock:
    """Virtual time, seen by a broker whose clock may jump back, or be ahead."""

    def __init__(self) -> None:
        self.epoch_ms = EPOCH_MS
        self.skew_ms = 0
        self._loop = virtual_loop()

    def true_ms(self) -> Ms:
        """Return the true time in ms since the epoch, without the errors of simulated clocks."""
        return self.epoch_ms + self.monotonic_ms()

    def now_ms(self) -> Ms:
        return self.true_ms() + self.skew_ms

    def monotonic_ms(self) -> Ms:
        return int(self._loop.now_s * 1_000)

    async def sleep(self, ms: Ms) -> None:
        await asyncio.sleep(ms / 1_000)


class TrueClock:
    """Virtual time, seen by a server whose clock is right whatever the broker's says."""

    def __init__(self, clock: BrokerClock) -> None:
        self.now_ms, self.monotonic_ms, self.sleep = clock.true_ms, clock.monotonic_ms, clock.sleep


class Broker:
    """`active`: partitions in use, of topics that do not use all; the others are not assigned."""

    def __init__(
        self, rng: Random, faults: Faults, tally: FaultTally, active: Mapping[str, frozenset[int]]
    ) -> None:
        self.clock = BrokerClock()
        self.memory = MemoryLog(self.clock, SESSION_MS)
        self.rng, self.faults, self.tally, self.active = rng, faults, tally, active
        self.healed = False
        self.away = False
        self.groups: dict[tuple[str, str], dict[str, asyncio.Queue[frozenset[int]]]] = defaultdict(
            dict
        )
        self._delivered_ms: dict[tuple[tuple[str, str], str], float] = {}
        self._exposed: dict[tuple[str, int], int] = {}
        self.trace: Callable[[str], None] = lambda _: None
        self.on_trim: Callable[[str, int, int], None] = lambda *_: None
        self.on_flight: Callable[[str], None] = lambda _: None
        # every record ever written, trimmed or not, by topic and partition
        self.history: dict[tuple[str, int], list[Record]] = defaultdict(list)

    def trace_into(self, lines: list[str]) -> None:
        """Append a line to these, with its second, for each thing that happens."""
        self.trace = lambda line: lines.append(f"{self.clock.monotonic_ms() / 1_000:8.3f} {line}")

    def chance(self, per_cent: int) -> bool:
        return per_cent > 0 and not self.healed and self.rng.random() * 100 < per_cent

    def later(self, ms: float, action: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(ms / 1_000, action)

    def must_answer(self) -> None:
        """Raises Unavailable."""
        if self.away:
            raise Unavailable("the broker is away")

    # --- records ----------------------------------------------------------------------------------

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> Appended:
        appended = self.memory.put(topic, partition, key, value)
        self.history[topic, partition].append(Record(partition, *appended, key, value))
        return appended

    async def append(
        self, who: str, topic: str, partition: int, key: bytes, value: bytes
    ) -> Appended:
        """One append over a faulty network. Raises AppendUnknown."""

        def put() -> Appended:
            appended = self.put(topic, partition, key, value)
            self.trace(f"{who} wrote {topic}/{partition}@{appended.offset} {value[:150]!r}")
            return appended

        def put_late() -> None:
            if not self.away:
                put()

        late_ms = self.rng.uniform(APPEND_MS_MAX / 2, LATE_MS_MAX)
        if self.away:
            self.tally.add("append cut off")
        elif self.chance(self.faults.lost):
            self.tally.add("append lost")
        elif self.chance(self.faults.late):
            self.tally.add("append late")
            self.later(late_ms, put_late)
        elif self.chance(self.faults.unanswered):
            self.tally.add("append unanswered")
            put()
        else:
            appended = put()
            if self.chance(self.faults.doubled):
                self.tally.add("append doubled")
                self.later(late_ms, put_late)
            if self.chance(self.faults.slow):
                self.tally.add("append slow")
                await asyncio.sleep(self.rng.uniform(0.02, 0.8) * APPEND_MS_MAX / 1_000)
            return appended
        self.trace(f"{who} does not know about {topic}/{partition}")
        await asyncio.sleep(APPEND_MS_MAX / 1_000)
        raise AppendUnknown("no answer in time")

    def expose(self, topic: str, partition: int, end: int) -> None:
        """Note that a client has seen the records before `end`: later answers must not be older."""
        key = (topic, partition)
        self._exposed[key] = max(end, self._exposed.get(key, 0))

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Bounds; a new leader knows only of records that were acknowledged or read."""
        start, end = await self.memory.bounds(topic, partition)
        known = max(self._exposed.get((topic, partition), 0), start)
        if known < end and self.chance(self.faults.stale_ends):
            self.tally.add("stale end")
            return start, known
        return start, end

    def lose_tail(self, topic: str, partition: int, count: int) -> int:
        """Forget the last records of a partition; how many there were."""
        log = self.memory.topics[topic][partition]
        lost = min(count, len(log.records))
        if lost:
            del log.records[-lost:]
            del self.history[topic, partition][-lost:]
            self._exposed.pop((topic, partition), None)
        return lost

    def recreate(self, topic: str, partition: int) -> list[Record]:
        """Replace a partition by an empty one; returns its records so far."""
        self.memory.topics[topic][partition] = Partition()
        self._exposed.pop((topic, partition), None)
        return self.history.pop((topic, partition), [])

    # --- groups -----------------------------------------------------------------------------------

    def join(
        self,
        group: tuple[str, str],
        member: str,
        queue: asyncio.Queue[frozenset[int]] | None = None,
    ) -> asyncio.Queue[frozenset[int]]:
        """Add a member to a group. queue: that of the member before its session expired."""
        queue = queue or asyncio.Queue()
        self.groups[group][member] = queue
        self.assign(group)
        return queue

    def leave(self, group: tuple[str, str], member: str) -> None:
        if self.groups[group].pop(member, None) is not None:
            self.assign(group)

    def expire(
        self, group: tuple[str, str], process: str
    ) -> dict[str, asyncio.Queue[frozenset[int]]]:
        """Remove the members of a process whose session has expired; returns them."""
        members = self.groups[group]
        gone = {name: queue for name, queue in members.items() if name.split("/")[0] == process}
        for name in gone:
            self.leave(group, name)
        return gone

    def in_use(self, topic: str) -> frozenset[int]:
        return self.active.get(topic, frozenset(range(PARTITIONS)))

    def assign(self, group: tuple[str, str]) -> None:
        """Assign every member its share; each assignment arrives after its own delay."""
        members, partitions = sorted(self.groups[group]), sorted(self.in_use(group[1]))
        for rank, member in enumerate(members):
            self.announce(group, member, frozenset(partitions[rank :: len(members)]))

    def announce(self, group: tuple[str, str], member: str, share: frozenset[int]) -> None:
        """Deliver an assignment to a member; assignments arrive in order."""
        queue = self.groups[group].get(member)
        if queue is not None:
            now_ms = self.clock.monotonic_ms()
            at_ms = now_ms + self.rng.uniform(1, BROADCAST_MS_MAX)
            at_ms = max(at_ms, self._delivered_ms.get((group, member), 0) + 1)
            self._delivered_ms[group, member] = at_ms
            self.later(at_ms - now_ms, lambda: queue.put_nowait(share))
