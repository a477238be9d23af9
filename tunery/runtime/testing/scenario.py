"""One seeded run: clients, the production hosts in processes that fail, and readers."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any, Final, TypeAlias
from uuid import UUID

from msgspec import Struct

from schemas.envelope import Idempotency
from schemas.topics import PARTITIONS, SNAPSHOTS, Stream
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.abstract import AppendUnknown
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.aggregate import AggregateHost
from tunery.runtime.journal.partition import Settled
from tunery.runtime.journal.ports import Limits
from tunery.runtime.journal.reactor import Reactor
from tunery.runtime.journal.reader import START, Accepted, JournalReader
from tunery.runtime.journal.verify import replay
from tunery.runtime.testing.broker import Broker, Door
from tunery.runtime.testing.faults import SESSION_MS, Faults, Tally, draw_faults
from tunery.runtime.testing.loop import run_virtual
from tunery.runtime.testing.toy import (
    PLACES,
    PLACES_AGGREGATE,
    STREAMS,
    TALLY,
    TALLY_AGGREGATE,
    Counted,
    GiveBack,
    Take,
    Taken,
    react_places,
)
from tunery.runtime.verbs import Aggregate

TENANTS: Final = ("ada", "bob", "cyd")
ACTIVE: Final = {
    PLACES.name: frozenset(partition_of(name.encode()) for name in TENANTS),
    TALLY.name: frozenset(partition_of(f"{name}-tally".encode()) for name in TENANTS),
}
PROCESSES: Final = 2
REQUESTS: Final = 8  # per tenant
FAULTY_S: Final = 25
HEALING_S_MAX: Final = 150
PATIENCE_S: Final = 6  # before a client sends its request again
Action: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
LIMITS: Final = Limits(
    idle_wait_ms=3_000,
    trim_every_ms=4_000,
    snapshot_every=5,
    back_off_ms_max=4_000,
    retry_ms=500,
    commit_every_ms=1_000,
)


class Plan(Struct, frozen=True):
    """requests: of each tenant."""

    seed: int
    faults: Faults
    requests: int = REQUESTS


@dataclass
class Run:
    """What a run left behind."""

    plan: Plan
    tally: Tally
    broker: Broker
    views: dict[str, dict[tuple[str, int], list[bytes]]] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)  # stops, of readers and hosts
    died: list[str] = field(default_factory=list)  # hosts that ended with an error
    trims: list[str] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    finished: bool = False

    def fingerprint(self) -> str:
        """Hash of everything that was ever written: equal for equal runs."""
        digest = blake2b(digest_size=16)
        for place in sorted(self.broker.history):
            for record in self.broker.history[place]:
                digest.update(repr((place, *record)).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class _Parts:
    name: str
    log: Door
    clock: Door
    blobs: MemoryBlobs


class _Process:
    """Owners of both streams and the reactor between them, behind one door."""

    def __init__(self, world: "_World", number: int) -> None:
        self.name = f"p{number}"
        self._world = world
        rng = Random(f"{world.run.plan.seed}/{self.name}")  # noqa: S311  # runs must repeat
        self.door = Door(world.broker, self.name, rng)
        self.door.on_crash = self._crashed
        parts = _Parts("toy", self.door, self.door, world.blobs)

        def fresh_id() -> str:
            return str(UUID(int=rng.getrandbits(128), version=4))

        def aggregate(one: Any) -> AggregateHost[Any]:
            return AggregateHost(
                parts,
                one,
                owner=self.name,
                fresh_id=fresh_id,
                limits=LIMITS,
                on_settled=world.run.settled.append,
            )

        self.hosts: list[AggregateHost[Any] | Reactor] = [
            aggregate(PLACES_AGGREGATE),
            aggregate(TALLY_AGGREGATE),
            Reactor(parts, PLACES, react_places, streams=STREAMS, limits=LIMITS),
        ]
        self.tasks = [asyncio.create_task(self._host(host)) for host in self.hosts]

    async def _host(self, host: Any) -> None:
        try:
            await host.run()
        except Exception as error:
            self._world.run.died.append(f"{self.name} {host.name}: {error!r}")

    def _crashed(self) -> None:
        asyncio.get_running_loop().call_soon(self._world.crash, self)

    def end(self) -> None:
        self.door.alive = False
        for task in self.tasks:
            task.cancel()
        for host in self.hosts:
            self._world.run.named.extend(str(stop) for stop in host.stopped.values())


class _World:
    def __init__(self, run: Run, rng: Random) -> None:
        self.run, self.rng, self.broker = run, rng, run.broker
        self.blobs = MemoryBlobs()
        self.processes: list[_Process] = []
        self.started = 0
        self.down = False  # everybody is down: nobody may start
        self.decided: dict[str, asyncio.Event] = {}
        self.taken = self.counted = 0

    def start(self) -> None:
        if not self.down:
            self.started += 1
            self.processes.append(_Process(self, self.started))

    def crash(self, process: _Process) -> None:
        if process not in self.processes:
            return
        self.run.tally.add("crash")
        self.broker.trace(f"{process.name} crashes")
        self.processes.remove(process)
        process.end()
        self.broker.later(SESSION_MS, lambda: self.expire(process))
        self.broker.later(self.rng.uniform(200, 5_000), self.start)

    def expire(self, process: _Process) -> None:
        for group in list(self.broker.groups):
            self.broker.leave(group, process.name)

    # --- readers ----------------------------------------------------------------------------------

    async def watch(self, name: str, stream: Stream, delay_s: float) -> None:
        """Follow all partitions from zero, without faults; what it accepts is compared later."""
        await asyncio.sleep(delay_s)
        partitions = sorted(ACTIVE[stream.name])
        reader = JournalReader(self.broker.memory, stream, dict.fromkeys(partitions, START))
        await reader.open()
        views = self.run.views.setdefault(name, {})
        while True:
            try:
                batches = await reader.read(60_000)
            except PartitionStopped as stopped:
                self.run.named.append(f"{name}: {stopped}")
                continue
            for partition, batch in batches.items():
                view = views.setdefault((stream.name, partition), [])
                view.extend(one.value for one in batch.accepted)
                if name == "prompt":
                    self._notice(batch.accepted)
            await asyncio.sleep(delay_s / 10)

    def _notice(self, accepted: tuple[Accepted, ...]) -> None:
        for one in accepted:
            self.taken += sum(isinstance(event, Taken) for event in one.events)
            self.counted += sum(isinstance(event, Counted) for event in one.events)
            if one.entry.idempotency is not None:
                self.decided.setdefault(one.entry.idempotency.key, asyncio.Event()).set()

    def nothing_open(self) -> bool:
        """Every command ever written is decided, and every reaction has arrived."""
        seen = self.run.views["prompt"]
        return self.taken == self.counted and all(
            len(seen.get((stream.name, partition), ()))
            == len(self.broker.history[stream.commands.name, partition])
            for stream in STREAMS.values()
            for partition in sorted(ACTIVE[stream.name])
        )

    def check_trim(self, topic: str, partition: int, before: int) -> None:
        """Never trimmed: what is not decided, and the last that is."""
        aggregates: tuple[Aggregate[Any], ...] = (PLACES_AGGREGATE, TALLY_AGGREGATE)
        for aggregate in aggregates:
            if aggregate.stream.commands.name == topic and not self.run.plan.faults.tail_loss:
                journal = self.broker.history[aggregate.stream.journal.name, partition]
                decided = replay(aggregate, partition, journal).accepted
                if before >= decided:
                    self.run.trims.append(f"trim: {topic} below {before}, decided are {decided}")

    # --- clients ----------------------------------------------------------------------------------

    async def client(self, tenant: str, door: Door) -> None:
        rng = Random(f"{self.run.plan.seed}/{tenant}")  # noqa: S311  # runs must repeat
        numbers = iter(range(self.run.plan.requests))
        for number in numbers:
            burst = [number, *(next(numbers, None) for _ in range(rng.choice((0, 0, 1, 3))))]
            await asyncio.sleep(rng.uniform(0, 4))
            requests = [self._request(tenant, one, rng, door) for one in burst if one is not None]
            await asyncio.gather(*requests)

    async def _request(self, tenant: str, number: int, rng: Random, door: Door) -> None:
        places = rng.randint(1, 3)
        body = Take(places=places) if rng.random() < 0.75 else GiveBack(places=places)
        key = f"{tenant}-{number}"
        by_body = rng.random() < 0.3
        decided = self.decided.setdefault(key, asyncio.Event())
        sender = Sender(door, STREAMS, lambda: str(UUID(int=rng.getrandbits(128), version=4)))
        retry = False
        while not decided.is_set():
            mark = Idempotency(key=key, body=key, by_body=by_body, retry=retry)
            try:
                await sender.send(PLACES, tenant, tenant, body, idempotency=mark)
                async with asyncio.timeout(PATIENCE_S):
                    await decided.wait()
            except (AppendUnknown, TimeoutError):
                self.run.tally.add("request sent again")
                retry = True

    # --- what goes wrong --------------------------------------------------------------------------

    async def chaos(self) -> None:
        faults = self.run.plan.faults
        plan: list[tuple[float, Action]] = []
        wanted: tuple[tuple[int, Action], ...] = (
            (faults.crashes, self._plant_crash),
            (faults.pauses, self._pause),
            (faults.overlaps, self._overlap),
            (faults.clock_jumps, self._jump),
            (int(faults.tail_loss), self._lose_tail),
            (faults.damaged, self._damage),
        )
        for count, action in wanted:
            plan.extend((self.rng.uniform(0.5, FAULTY_S - 3), action) for _ in range(count))
        plan.sort(key=lambda step: step[0])
        async with asyncio.TaskGroup() as group:
            begun = 0.0
            for at, action in plan:
                await asyncio.sleep(at - begun)
                begun = at
                group.create_task(action())

    async def _plant_crash(self) -> None:
        if self.processes:
            self.rng.choice(self.processes).door.crash_after = self.rng.randint(1, 80)

    async def _pause(self) -> None:
        if not self.processes:
            return
        process, pause_s = self.rng.choice(self.processes), self.rng.uniform(0.2, 10)
        self.run.tally.add("pause")
        self.broker.trace(f"{process.name} pauses for {pause_s:.1f} s")
        process.door.pause()
        await asyncio.sleep(min(pause_s, SESSION_MS / 1_000))
        if pause_s > SESSION_MS / 1_000:
            members = {
                group: queues.get(process.name) for group, queues in self.broker.groups.items()
            }
            self.expire(process)
            await asyncio.sleep(pause_s - SESSION_MS / 1_000)
            if process in self.processes:
                for group, queue in members.items():
                    if queue is not None:
                        self.broker.groups[group][process.name] = queue
                        self.broker.assign(group)
        self.broker.trace(f"{process.name} goes on")
        process.door.resume()

    async def _overlap(self) -> None:
        """A group says the same to everybody: all owners believe to own everything."""
        groups = sorted(group for group, members in self.broker.groups.items() if members)
        if not groups:
            return
        group = self.rng.choice(groups)
        self.run.tally.add("overlap")
        for member in sorted(self.broker.groups[group]):
            self.broker.tell(group, member, self.broker.active[group[1]])
        await asyncio.sleep(self.rng.uniform(1, 6))
        self.broker.assign(group)

    async def _jump(self) -> None:
        self.run.tally.add("clock jump")
        self.broker.clock.skew_ms -= self.rng.randint(1, 40_000)

    async def _damage(self) -> None:
        """A snapshot rots, or its blob is gone."""
        keys = sorted(self.blobs.bodies)
        if keys:
            self.run.tally.add("snapshot damaged")
            key = self.rng.choice(keys)
            body = self.blobs.bodies.pop(key)
            if self.rng.random() < 0.7:
                self.blobs.bodies[key] = body[: len(body) // 2]

    async def _lose_tail(self) -> None:
        """Everybody goes down, and the journal's last records with them."""
        self.down = True
        for process in list(self.processes):
            self.crash(process)
        await asyncio.sleep(2)
        partition = self.rng.choice(sorted(ACTIVE[PLACES.name]))
        lost = self.broker.lose_tail(PLACES.journal.name, partition, self.rng.randint(1, 3))
        self.run.tally.add("journal records lost", lost)
        self.broker.trace(f"the last {lost} records of places/{partition} are lost")
        self.down = False
        for _ in range(PROCESSES):
            self.start()

    def heal(self) -> None:
        self.broker.trace("faults stop")
        self.broker.healed = True
        for process in self.processes:
            process.door.crash_after = None
            process.door.resume()
        while len(self.processes) < PROCESSES:
            self.start()
        for group in list(self.broker.groups):
            self.broker.assign(group)


async def _play(run: Run, rng: Random) -> None:
    world = _World(run, rng)
    world.broker.on_trim = world.check_trim
    topics = [topic for stream in STREAMS.values() for topic in (stream.commands, stream.journal)]
    await world.broker.memory.create([*topics, SNAPSHOTS], PARTITIONS)
    for _ in range(PROCESSES):
        world.start()
    door = Door(world.broker, "client", Random(f"{run.plan.seed}/client"))  # noqa: S311  # must repeat
    watching = [
        asyncio.create_task(world.watch(name, stream, delay_s))
        for name, delay_s in (("prompt", 0.01), ("slow", 8.0))
        for stream in (PLACES, TALLY)
    ]
    clients = [asyncio.create_task(world.client(tenant, door)) for tenant in TENANTS]
    chaos = asyncio.create_task(world.chaos())
    await asyncio.sleep(FAULTY_S)
    await chaos
    world.heal()
    await asyncio.sleep(12)  # appends that are late, slow readers, the last trims
    patience_s = 30 if run.plan.faults.tail_loss else HEALING_S_MAX
    deadline = asyncio.get_running_loop().time() + patience_s
    while asyncio.get_running_loop().time() < deadline and not run.finished:
        await asyncio.sleep(0.5)
        run.finished = all(task.done() for task in clients) and world.nothing_open()
    for process in list(world.processes):
        process.end()
    for task in (*clients, *watching):
        if task.done() and task.exception() is not None:
            run.died.append(repr(task.exception()))
        task.cancel()


def plan(seed: int) -> Plan:
    """What the seed draws."""
    return Plan(seed, draw_faults(Random(f"{seed}/faults")))  # noqa: S311  # runs must repeat


def play(plan: Plan, trace: bool = False) -> Run:
    """Run a plan on virtual time. The same plan gives the same run, to the byte."""
    rng = Random(plan.seed)  # noqa: S311  # runs must repeat
    tally = Tally()
    active = {
        topic: ACTIVE[stream.name]
        for stream in STREAMS.values()
        for topic in (stream.commands.name, stream.journal.name)
    }

    async def main() -> Run:
        broker = Broker(rng, plan.faults, tally, active)
        run = Run(plan, tally, broker)
        if trace:
            broker.trace = lambda line: run.trace.append(
                f"{broker.clock.monotonic_ms() / 1_000:8.3f} {line}"
            )
        await _play(run, rng)
        return run

    return run_virtual(main())
