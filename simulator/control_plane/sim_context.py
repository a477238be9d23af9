"""What everybody in the town stands on: one log, one time, chance, and the news."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final
from uuid import UUID

from schemas.envelope import Idempotency, Message
from schemas.topics import ACCOUNT, JOB, POOL, STREAMS, Stream
from simulator.control_plane.plan import Plan, Size
from simulator.control_plane.samples import POOL as POOL_NAME
from simulator.engine.broker import Broker
from simulator.engine.faulty_port import Door
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.journal.reader import START, Accepted, JournalReader

PATIENCE_S: Final = 8  # before a client sends its request again
RETRY_MS: Final = 500
READ_WAIT_MS: Final = 3_600_000
POOL_PARTITION: Final = partition_of(POOL_NAME.encode())
Reader = Callable[[Accepted], None]


def tenants(count: int) -> tuple[str, ...]:
    return tuple(f"tenant-{number}" for number in range(count))


def active(size: Size) -> dict[str, frozenset[int]]:
    """Partitions in use, by topic."""
    by_tenant = frozenset(partition_of(name.encode()) for name in tenants(size.tenants))
    places = {ACCOUNT: by_tenant, JOB: by_tenant, POOL: frozenset((POOL_PARTITION,))}
    return {
        topic.name: partitions
        for stream, partitions in places.items()
        for topic in (stream.commands, stream.journal)
    }


class Ground:
    """`news`: all accepted entries by stream, in order, as a reader without faults sees them."""

    def __init__(self, plan: Plan, size: Size, broker: Broker, rng: Random) -> None:
        self.plan, self.size, self.broker, self.rng = plan, size, broker, rng
        self.violations: list[str] = []
        self.news: dict[str, list[Accepted]] = {stream: [] for stream in ("account", "job", "pool")}
        self.readers: list[Reader] = []
        self._decided: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._answers: dict[str, tuple[Any, ...]] = {}

    def door(self, name: str) -> tuple[Door, Sender]:
        """A way to the log of one's own, and how to say something through it."""
        rng = self.chance(name)
        door = Door(self.broker, name, rng)
        return door, Sender(door, STREAMS, lambda: fresh_id(rng))

    def chance(self, name: str) -> Random:
        return Random(f"{self.plan.seed}/{name}")

    def happens(self, per_cent: int) -> bool:
        return self.broker.chance(per_cent)

    @property
    def healed(self) -> bool:
        return self.broker.healed

    # --- news -------------------------------------------------------------------------------------

    async def tell_news(self, stream: Stream) -> None:
        partitions = sorted(self.broker.active[stream.journal.name])
        reader = JournalReader(self.broker.memory, stream, dict.fromkeys(partitions, START))
        await reader.open()
        while True:
            for batch in (await reader.read(READ_WAIT_MS)).values():
                self._spread(stream.name, batch.accepted)

    def _spread(self, stream: str, entries: Iterable[Accepted]) -> None:
        for one in entries:
            self.news[stream].append(one)
            self.broker.trace(f"{stream}@{one.header.offset} {told(one)}")
            if one.entry.idempotency is not None:
                self._answers.setdefault(one.entry.idempotency.key, one.events)
                self._decided[one.entry.idempotency.key].set()
            for read in self.readers:
                read(one)

    # --- speaking ---------------------------------------------------------------------------------

    async def ask(
        self, door: Door, sender: Sender, stream: str, tenant: str, mark: str, body: Message
    ) -> tuple[Any, ...]:
        """What a patient client's command led to: sent until it is decided."""
        decided, retry = self._decided[mark], False
        while not decided.is_set():
            idempotency = Idempotency(key=mark, body=mark, retry=retry)
            try:
                await sender.send(stream, tenant, tenant, body, idempotency=idempotency)
                async with asyncio.timeout(PATIENCE_S):
                    await decided.wait()
            except (AppendUnknown, Unavailable, TimeoutError):
                retry = True
            await door.pass_through(0)
        return self._answers[mark]


async def insist(door: Door, sender: Sender, stream: str, key: str, body: Message) -> None:
    """Until it is in the log, maybe several times: facts that were told before change nothing."""
    tenant = "" if stream == "pool" else key
    while True:
        try:
            await sender.send(stream, key, tenant, body)
        except (AppendUnknown, Unavailable):
            await door.sleep(RETRY_MS)
        else:
            return


def told(one: Accepted) -> str:
    """An entry for a timeline: whose it is, and which events of which jobs, leases, nodes."""
    names = ("job_id", "attempt", "token", "node_id", "outcome", "cause", "code")
    events = []
    for event in one.events:
        given = {name: getattr(event, name, None) for name in names}
        known = ", ".join(str(getattr(v, "lease", v)) for v in given.values() if v is not None)
        events.append(f"{type(event).__name__}({known})")
    return f"{one.header.key}: {' '.join(events) or 'nothing'}"


def fresh_id(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))
