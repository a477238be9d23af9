"""The state that all parts of a run share: the log, random numbers, and the decisions so far."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final
from uuid import UUID

from schemas.account import PRICES_PARTITION
from schemas.envelope import Idempotency, Message
from schemas.topics import ACCOUNT, JOB, POOL, STREAMS, Stream
from simulator.control_plane.gangs import SimGang
from simulator.control_plane.plan import ControlPlanePlan, Size
from simulator.control_plane.samples import POOL as POOL_NAME
from simulator.engine.broker import Broker
from simulator.engine.cluster import keys_as
from simulator.engine.faulty_port import FaultyPort
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.hosts.broker_time import AHEAD_MS_MAX
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
    of_accounts = by_tenant | {PRICES_PARTITION}
    partitions_in_use = {ACCOUNT: of_accounts, JOB: by_tenant, POOL: frozenset((POOL_PARTITION,))}
    return {
        topic.name: partitions
        for stream, partitions in partitions_in_use.items()
        for topic in (stream.commands, stream.journal)
    }


class SimContext:
    """`decisions`: accepted entries by stream, in order, as a reader without faults sees them."""

    def __init__(self, plan: ControlPlanePlan, size: Size, broker: Broker, rng: Random) -> None:
        self.plan, self.size, self.broker, self.rng = plan, size, broker, rng
        self.violations: list[str] = []
        self.decisions: dict[str, list[Accepted]] = {
            stream: [] for stream in ("account", "job", "pool")
        }
        self.readers: list[Reader] = []
        self.gangs: dict[int, SimGang] = defaultdict(SimGang)  # by lease
        self._decided: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._answers: dict[str, tuple[Any, ...]] = {}

    def port(self, name: str) -> tuple[FaultyPort, Callable[[str], Sender]]:
        """A port to the log of its own, and the sender of a principal that goes through it."""
        rng = self.chance(name)
        port = FaultyPort(self.broker, name, rng)

        def sender_as(principal: str) -> Sender:
            return Sender(port, STREAMS, lambda: fresh_id(rng), keys_as(principal))

        return port, sender_as

    def chance(self, name: str) -> Random:
        return Random(f"{self.plan.seed}/{name}")

    def happens(self, per_cent: int) -> bool:
        return self.broker.chance(per_cent)

    @property
    def healed(self) -> bool:
        return self.broker.healed

    # --- decisions --------------------------------------------------------------------------------

    async def follow(self, stream: Stream) -> None:
        partitions = sorted(self.broker.active[stream.journal.name])
        reader = JournalReader(self.broker.memory, stream, dict.fromkeys(partitions, START))
        await reader.open()
        while True:
            for batch in (await reader.read(READ_WAIT_MS)).values():
                self._publish(stream.name, batch.accepted)

    def _publish(self, stream: str, entries: Iterable[Accepted]) -> None:
        for decision in entries:
            self.decisions[stream].append(decision)
            self._check_time(decision)
            self.broker.trace(f"{stream}@{decision.header.offset} {describe(decision)}")
            if decision.entry.idempotency is not None:
                self._answers.setdefault(decision.entry.idempotency.key, decision.events)
                self._decided[decision.entry.idempotency.key].set()
            for read in self.readers:
                read(decision)

    def _check_time(self, decision: Accepted) -> None:
        """Time never runs back, so one that is far ahead would stand until the truth is there."""
        ahead_ms = decision.header.at - self.broker.clock.true_ms()
        if ahead_ms > AHEAD_MS_MAX + 1_000:
            self.violations.append(f"time: {decision.header.stream} is {ahead_ms} ms ahead")

    # --- commands ---------------------------------------------------------------------------------

    async def ask(
        self, port: FaultyPort, sender: Sender, stream: str, tenant: str, mark: str, body: Message
    ) -> tuple[Any, ...]:
        """Send a command until it is decided; returns its outcome."""
        decided, retry = self._decided[mark], False
        while not decided.is_set():
            idempotency = Idempotency(key=mark, body=mark, retry=retry)
            try:
                await sender.send(stream, tenant, tenant, body, idempotency=idempotency)
                async with asyncio.timeout(PATIENCE_S):
                    await decided.wait()
            except (AppendUnknown, Unavailable, TimeoutError):
                retry = True
            await port.pass_through(0)
        return self._answers[mark]


async def insist(
    port: FaultyPort,
    sender: Sender,
    stream: str,
    key: str,
    body: Message,
    partition: int | None = None,
) -> None:
    """Send until the command is in the log, perhaps several times; repeats change nothing."""
    tenant = "" if stream == "pool" else key
    while True:
        try:
            await sender.send(stream, key, tenant, body, partition=partition)
        except (AppendUnknown, Unavailable):
            await port.sleep(RETRY_MS)
        else:
            return


def describe(decision: Accepted) -> str:
    """One line of a timeline: an entry's tenant, its events and their jobs, leases and nodes."""
    names = ("job_id", "attempt", "token", "node_id", "outcome", "cause", "code")
    events = []
    for event in decision.events:
        values = {name: getattr(event, name, None) for name in names}
        known = ", ".join(str(getattr(v, "lease", v)) for v in values.values() if v is not None)
        events.append(f"{type(event).__name__}({known})")
    return f"{decision.header.key}: {' '.join(events) or 'nothing'}"


def fresh_id(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))
