"""One seeded run of the core: clients, the production hosts in processes that fail, readers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from examples.first_stream import SEATS, HoldSeats, ReleaseSeats, SeatsHeld, TicketRecorded
from schemas.envelope import Claim, Idempotency
from schemas.levels import LevelOrder
from schemas.streams import LEVELS_TOPIC, PARTITIONS, UPGRADE_PARTITION, Stream
from schemas.topics import LEVELS, SNAPSHOTS
from schemas.units import Ms
from simulator.engine.broker import LATE_MS_MAX, Broker
from simulator.engine.cluster import Cluster, Process, keys_as
from simulator.engine.faults import FaultTally
from simulator.engine.faulty_port import FaultyPort
from simulator.engine.stores import FaultyBlobs
from simulator.engine.virtual_loop import run_virtual
from simulator.event_core.releases import SEATS_NEWER, SEATS_PRAISING, SEATS_STRICTER, react_newer
from simulator.event_core.run import (
    ACTIVE,
    ARCHIVED,
    EMPTIED,
    FAULTY_MS,
    RECREATED,
    TAIL_LOST,
    TENANTS,
    UPGRADE,
    EventCorePlan,
    EventCoreRun,
    Trim,
)
from simulator.event_core.streams import STREAMS, TALLY, TALLY_AGGREGATE, SeatsCounted
from simulator.event_core.views import TICKET, VIEWS, ticket_effect
from tunery.runtime.blobs.abstract import ListedBlobs
from tunery.runtime.bus.abstract import (
    AppendUnknown,
    ArchiveDamaged,
    Commit,
    Record,
    Unavailable,
)
from tunery.runtime.bus.sender import Sender
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.codec import decode_envelope, encode
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.journal.reader import START, Accepted, JournalReader
from tunery.runtime.journal.refusals import OPERATOR
from tunery.runtime.levels import LogLevels
from tunery.runtime.tools import archiving
from tunery.runtime.tools.archived_log import Archive, ArchivedLog
from tunery.runtime.tools.archiving import NotArchived
from tunery.runtime.tools.verify import Replay, replay
from tunery.runtime.verbs import Aggregate

SERVICE: Final = "toy"
HEALING_S_MAX: Final = 90
WORKING_S_MAX: Final = 900  # an outcome lost when all was tried is said again after 600
TAKEN_BACK: Final = 0.3  # of upgrades
KILLED: Final = 0.5  # of commands that archive
ALL_OLD: Final[Ms] = 1 << 60
LEARNT_S_MAX: Final = 6  # until a process, and then the next one, learns of a raised level
PATIENCE_S: Final = 6  # before a client sends its request again
RETRY_S: Final = 0.5
LIMITS: Final = HostLimits(
    idle_wait_ms=3_000,
    trim_every_ms=4_000,
    snapshot_every=5,
    back_off_ms_max=4_000,
    retry_ms=500,
    commit_every_ms=1_000,
)


class _EventCoreSim:
    def __init__(self, run: EventCoreRun, rng: Random) -> None:
        self.run, self.rng, self.broker = run, rng, run.broker
        self.cluster = Cluster(run.broker, run.plan.seed, STREAMS, self._hosts)
        self.cluster.actions |= {
            TAIL_LOST: self._lose_tail,
            RECREATED: self._recreate,
            EMPTIED: self._empty,
            UPGRADE: self._upgrade,
            ARCHIVED: self._archive,
        }
        self.maintenance = asyncio.Lock()
        self.decided: dict[str, asyncio.Event] = {}
        self.sums: Counter[type[Any]] = Counter()
        self.over: frozenset[str] = frozenset()  # effects whose outcome was there before a rebuild
        self.ticketed: set[str] = set()
        self.levels: dict[str, LogLevels] = {}  # of each process that ever ran

    def _hosts(self, process: Process) -> Sequence[Host]:
        run = self.run
        seats = run.decider(SEATS.name, process.name)
        limits = replace(LIMITS, standby=run.plan.standby)
        levels = LogLevels(seats.stream.level, keys_as(SERVICE))
        levels.take(self.broker.history[LEVELS_TOPIC, UPGRADE_PARTITION])
        runtime = process.runtime(SERVICE)
        log = with_archive(process.port, cast("ListedBlobs", runtime.blobs))
        runtime = replace(runtime, log=log, levels=levels)
        self.levels[process.name] = levels

        async def work(of: str) -> None:
            run.worked[of] += 1
            if of in self.over:
                run.repeated.append(f"repeated: the effect for {of} ran after its outcome")
            await process.port.sleep(int(process.rng.expovariate(1 / 400)))
            if self.broker.chance(run.plan.failures):
                run.tally.add("effect failed")
                raise OSError("the effect failed")

        def aggregate(decider: Aggregate[Any]) -> AggregateHost[Any]:
            return AggregateHost(
                runtime,
                decider,
                owner=process.name,
                fresh_id=process.fresh_id,
                limits=limits,
                on_settled=run.settled.append,
            )

        return (
            aggregate(seats),
            aggregate(TALLY_AGGREGATE),
            Reactor(runtime, seats.stream, react_newer, streams=STREAMS, limits=LIMITS),
            Projector(runtime, replace(VIEWS, streams=(seats.stream, TALLY))),
            EffectHost(runtime, (ticket_effect(work),)),
        )

    # --- readers ----------------------------------------------------------------------------------

    async def watch(self, name: str, stream: Stream, delay_s: float) -> None:
        """Follow all partitions from zero, without faults; what it accepts is compared later."""
        await asyncio.sleep(delay_s)
        partitions = sorted(ACTIVE[stream.name])
        log = with_archive(self.broker.memory, self.cluster.storage)
        reader = JournalReader(log, stream, dict.fromkeys(partitions, START))
        await reader.open()
        views = self.run.views.setdefault(name, {})
        while True:
            try:
                batches = await reader.read(60_000)
            except PartitionStopped as stopped:
                self.run.stops.append(f"{name}: {stopped}")
                continue
            for partition, batch in batches.items():
                view = views.setdefault((stream.name, partition), [])
                view.extend(decision.value for decision in batch.accepted)
                if name == "prompt":
                    self._notice(batch.accepted)
            await asyncio.sleep(delay_s / 10)

    def _notice(self, accepted: tuple[Accepted, ...]) -> None:
        for decision in accepted:
            self.sums.update(type(event) for event in decision.events)
            self.ticketed.update(
                event.hold_id for event in decision.events if isinstance(event, TicketRecorded)
            )
            if decision.entry.idempotency is not None:
                self.decided.setdefault(decision.entry.idempotency.key, asyncio.Event()).set()

    def nothing_open(self) -> bool:
        """Every command ever written is decided; every reaction and every outcome has arrived."""
        seen, sums = self.run.views["prompt"], self.sums
        return sums[SeatsHeld] == sums[SeatsCounted] == sums[TicketRecorded] and all(
            len(seen.get((stream.name, partition), ()))
            == len(self.broker.history[stream.commands.name, partition])
            for stream in STREAMS.values()
            for partition in sorted(ACTIVE[stream.name])
        )

    def is_patient(self, waited_s: float) -> bool:
        """True if missing records may still arrive after `waited_s` seconds."""
        if self.run.plan.faults.has(TAIL_LOST):
            return waited_s < HEALING_S_MAX / 3
        working = self.cluster.database(SERVICE).has_work()
        return waited_s < (WORKING_S_MAX if working else HEALING_S_MAX)

    async def projected(self) -> bool:
        """The projection has read all there is, and no work is left."""
        database = self.cluster.database(SERVICE)
        saved = await database.positions(VIEWS.name)
        ends = {
            (stream.name, partition): (await self.broker.bounds(stream.journal.name, partition))[1]
            for stream in STREAMS.values()
            for partition in ACTIVE[stream.name]
        }
        return all(
            partition in saved
            and saved[partition].position.offset == end
            and saved[partition].caught_up
            for partition, end in ends.items()
        ) and not await database.lease_rows(TICKET, 1, 0)

    async def keep_rows(self) -> None:
        """Keep the rows of the projection."""
        database, run = self.cluster.database(SERVICE), self.run
        for table in VIEWS.tables:
            run.rows[table] = {
                (row.get("id", row.get("key")),): row for row in await database.rows(table)
            }
        for stream, partitions in ACTIVE.items():
            for partition in partitions:
                for record in self.broker.history[STREAMS[stream].commands.name, partition]:
                    command_id = read_id(record)
                    run.command_results[command_id] = await database.command_result(command_id)

    def note_trim(self, topic: str, partition: int, before: int) -> None:
        for stream in STREAMS.values():
            if stream.commands.name == topic:
                journal = self.broker.history[stream.journal.name, partition]
                self.run.trims.append(Trim(stream.name, partition, before, len(journal)))

    def _replay(self, stream: Stream, partition: int) -> Replay[Any]:
        aggregate: Aggregate[Any] = SEATS_PRAISING if stream.name == SEATS.name else TALLY_AGGREGATE
        return replay(aggregate, partition, self.broker.history[stream.journal.name, partition])

    # --- clients ----------------------------------------------------------------------------------

    async def client(self, tenant: str, port: FaultyPort) -> None:
        rng = Random(f"{self.run.plan.seed}/{tenant}")  # runs must repeat
        numbers = iter(range(self.run.plan.requests))
        for number in numbers:
            burst = [number, *(next(numbers, None) for _ in range(rng.choice((0, 0, 1, 3))))]
            await asyncio.sleep(rng.uniform(0, 4))
            requests = [
                self._request(tenant, request, rng, port)
                for request in burst
                if request is not None
            ]
            await asyncio.gather(*requests)

    async def _request(self, tenant: str, number: int, rng: Random, port: FaultyPort) -> None:
        seats = rng.randint(1, 3)
        body = HoldSeats(seats=seats) if rng.random() < 0.75 else ReleaseSeats(seats=seats)
        key = f"{tenant}-{number}"
        by_body = rng.random() < 0.3
        decided = self.decided.setdefault(key, asyncio.Event())
        sender = Sender(
            port,
            STREAMS,
            lambda: str(UUID(int=rng.getrandbits(128), version=4)),
            keys_as("gateway"),
        )
        retry = False
        while not decided.is_set():
            mark = Idempotency(key=key, body=key, by_body=by_body, retry=retry)
            try:
                await sender.send(SEATS, tenant, tenant, body, idempotency=mark)
                async with asyncio.timeout(PATIENCE_S):
                    await decided.wait()
            except (AppendUnknown, TimeoutError):
                self.run.tally.add("request sent again")
                retry = True
            except Unavailable:
                await asyncio.sleep(RETRY_S)

    # --- what goes wrong, besides what may happen to any cluster ----------------------------------

    @asynccontextmanager
    async def all_processes_down(self) -> AsyncIterator[None]:
        """Maintenance of the servers, one at a time: all processes are down meanwhile."""
        async with self.maintenance:
            self.cluster.stop_all()
            await asyncio.sleep(self.rng.uniform(0.5, 3))
            try:
                yield
            finally:
                self.cluster.down = False
                self.cluster.start()

    async def _lose_tail(self, rng: Random) -> None:
        """Stop all processes and lose the last records of a journal."""
        async with self.all_processes_down():
            partition = rng.choice(sorted(ACTIVE[SEATS.name]))
            lost = self.broker.lose_tail(SEATS.journal.name, partition, rng.randint(1, 3))
            self.run.tally.add(TAIL_LOST, int(lost > 0))
            self.broker.trace(f"the last {lost} records of seats/{partition} are lost")

    async def _recreate(self, rng: Random) -> None:
        """Recreate a commands topic: its owner must stop until an operator sets the base."""
        stream = rng.choice(sorted(STREAMS.values(), key=lambda stream: stream.name))
        partition = rng.choice(sorted(ACTIVE[stream.name]))
        async with self.all_processes_down():
            decided = self._replay(stream, partition).accepted
            if decided == 0:
                return  # nothing contradicts the new topic
            self.run.tally.add(RECREATED)
            self.run.forgiven.append(f"{stream.name} (commands)/{partition} at ")
            self.broker.trace(f"the commands of {stream.name}/{partition} are made anew")
            before = self.broker.recreate(stream.commands.name, partition)
        await asyncio.sleep(rng.uniform(4, 12))
        async with self.all_processes_down():
            await self._set_base(stream, partition, before, decided)

    async def _set_base(
        self, stream: Stream, partition: int, before: list[Record], decided: int
    ) -> None:
        """Recover lost commands as an operator does.

        Empty the commands topic, claim the journal with a new base, and send reactions again.
        Commands that reached the new topic meanwhile would otherwise be decided before those that
        were lost, and reactions out of order are dropped. Nothing is to be done if the owner went
        on: reactions that were sent again have rebuilt the same topic.
        """
        fold = self._replay(stream, partition).fold
        base = fold.position.acceptance.cause + 1
        history = self.broker.history[stream.commands.name, partition]
        if decided < base <= len(history) and read_id(history[base - 1]) == fold.command_id:
            history[:decided] = before[:decided]
            return
        before += self.broker.recreate(stream.commands.name, partition)
        self.broker.history[stream.commands.name, partition] = before[:base]
        claim = encode(Claim(owner="operator", nonce=f"base {base}", base=base))
        self.broker.trace(f"an operator sets the base of {stream.name}/{partition} to {base}")
        self.broker.put(stream.journal.name, partition, b"", claim)
        zero = dict.fromkeys(range(PARTITIONS), Commit(0, ""))
        group = f"tunery.{SERVICE}.reacts.{SEATS.name}.positions"
        await self.broker.memory.commit(group, SEATS.journal.name, zero)

    async def _empty(self, _: Random) -> None:
        """Lose the database with all rows: they are rebuilt, and no effect runs again."""
        async with self.all_processes_down():
            self.run.tally.add(EMPTIED)
            self.broker.trace("the database is lost")
            self.cluster.database(SERVICE).empty()
            self.over = frozenset(self.ticketed)

    async def _upgrade(self, rng: Random) -> None:
        """One process after the other is started as the next release.

        It decides otherwise, or knows an event that the others cannot read: it must not write that
        before all can and an operator has raised the level. Until then it may be taken back.
        """
        self.run.tally.add(UPGRADE)
        run = self.run
        run.next_from = self.cluster.started + 1
        run.next_release = rng.choice((SEATS_STRICTER, SEATS_PRAISING))
        self.broker.trace(f"the next release begins with p{run.next_from}")
        for process in list(self.cluster.processes):
            self.cluster.crash(process)
            await asyncio.sleep(rng.uniform(2, 6))
            await self.cluster.actions["overlap"](rng)
        if rng.random() < TAKEN_BACK:
            await self._take_back(rng)
        elif run.next_release is SEATS_PRAISING:
            await self._finalize(rng)

    async def _archive(self, rng: Random) -> None:
        """Move old records of all journals as an operator does, whose command may be killed."""
        self.run.tally.add(ARCHIVED)
        port = FaultyPort(self.broker, "operator", rng)
        log = with_archive(port, FaultyBlobs(port, self.cluster.storage))

        async def command() -> None:
            for stream in STREAMS.values():
                for partition in sorted(ACTIVE[stream.name]):
                    done = await archiving.archive(log, stream, partition, ALL_OLD)
                    self.run.tally.add("records archived", done.records)

        if rng.random() < KILLED:
            port.crash_after = rng.randint(1, 150)
        task = asyncio.create_task(command())
        port.on_crash = cast("Callable[[], None]", task.cancel)
        await asyncio.wait([task])
        if task.cancelled():
            self.run.tally.add("archiving killed")
        elif isinstance(error := task.exception(), ArchiveDamaged | NotArchived):
            self.run.died.append(f"archive: {error!r}")

    async def _take_back(self, rng: Random) -> None:
        """The release before is started again, one process after the other."""
        self.run.back_from = self.cluster.started + 1
        self.broker.trace(f"the release before is back with p{self.run.back_from}")
        for process in list(self.cluster.processes):
            self.cluster.crash(process)
            await asyncio.sleep(rng.uniform(2, 6))

    async def _finalize(self, rng: Random) -> None:
        """An operator raises the level once all run the next release; they learn it in turn."""
        first = self.run.next_from or 0
        while any(process.generation < first for process in self.cluster.processes):  # noqa: ASYNC110  # it asks who runs
            await asyncio.sleep(0.5)
        order = LevelOrder(stream=SEATS.name, level=SEATS_NEWER.level, operator="ada")
        value = keys_as(OPERATOR).sign(SEATS.name, msgspec.json.encode(order))
        self.broker.put(LEVELS_TOPIC, UPGRADE_PARTITION, b"", value)
        self.broker.trace(f"an operator raises the log to level {SEATS_NEWER.level}")
        for process in list(self.cluster.processes):
            await asyncio.sleep(rng.uniform(0, LEARNT_S_MAX))
            self.levels[process.name].take(self.broker.history[LEVELS_TOPIC, UPGRADE_PARTITION])


def with_archive(log: Any, blobs: ListedBlobs) -> ArchivedLog:
    streams = {stream.journal.name: stream.name for stream in STREAMS.values()}
    return ArchivedLog(log, Archive(lambda: blobs), streams)


def read_id(record: Record) -> str:
    return str(decode_envelope(record.value).id)


async def _play(run: EventCoreRun, rng: Random) -> None:
    world = _EventCoreSim(run, rng)
    cluster, faults = world.cluster, run.plan.faults
    world.broker.on_trim = world.note_trim
    topics = [topic for stream in STREAMS.values() for topic in (stream.commands, stream.journal)]
    await world.broker.memory.create([*topics, SNAPSHOTS, LEVELS], PARTITIONS)
    cluster.start()
    port = FaultyPort(world.broker, "client", Random(f"{run.plan.seed}/client"))  # must repeat
    watching = [
        asyncio.create_task(world.watch(name, stream, delay_s))
        for name, delay_s in (("prompt", 0.01), ("slow", 8.0))
        for stream in (SEATS_NEWER, TALLY)
    ]
    clients = [asyncio.create_task(world.client(tenant, port)) for tenant in TENANTS]
    chaos = asyncio.create_task(cluster.chaos(faults))
    await asyncio.sleep(FAULTY_MS / 1_000)
    await chaos
    cluster.heal()
    await asyncio.sleep(LATE_MS_MAX / 1_000)
    begun = asyncio.get_running_loop().time()
    while not run.finished and world.is_patient(asyncio.get_running_loop().time() - begun):
        await asyncio.sleep(0.5)
        decided = all(task.done() for task in clients) and world.nothing_open()
        run.finished = decided and await world.projected()
    await world.keep_rows()
    cluster.end()
    run.named, run.died = cluster.named, cluster.died
    for task in (*clients, *watching):
        if task.done() and task.exception() is not None:
            run.died.append(repr(task.exception()))
        task.cancel()


def play(plan: EventCorePlan, trace: bool = False) -> EventCoreRun:
    """Run a plan on virtual time. The same plan gives the same run, to the byte."""
    rng = Random(plan.seed)  # runs must repeat
    tally = FaultTally()
    active = {
        topic: ACTIVE[stream.name]
        for stream in STREAMS.values()
        for topic in (stream.commands.name, stream.journal.name)
    }

    async def main() -> EventCoreRun:
        broker = Broker(rng, plan.faults, tally, active)
        run = EventCoreRun(plan, tally, broker)
        if trace:
            broker.trace_into(run.trace)
        await _play(run, rng)
        return run

    return run_virtual(main())
