"""Processes that run the production hosts, and the faults of processes and servers."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from schemas.streams import Stream
from schemas.topics import SNAPSHOTS
from schemas.units import HOUR_MS, Ms
from simulator.engine.broker import Broker
from simulator.engine.faults import SESSION_MS, Faults, FaultStep
from simulator.engine.faulty_port import FaultyPort
from simulator.engine.stores import Database, FaultyBlobs, FaultyStore, Storage
from tunery.platform.memory_servers import settings
from tunery.platform.ports import Runtime
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import SenderKeys, operator_keys
from tunery.runtime.health import FailureReason, Health
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.broker_time import AHEAD_MS_MAX
from tunery.runtime.hosts.keeping import OUTAGE, keep
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.snapshots import Pointer
from tunery.runtime.tasks import StrayCancellation

PROCESSES: Final = 2
RESTART_MS_MAX: Final[Ms] = 5_000
CRASH_WITHIN: Final = 80  # awaits of the process until a planted crash, at most
FLIGHT_S_MAX: Final = 3
Action: TypeAlias = Callable[[Random], Coroutine[Any, Any, None]]


@cache
def _settings() -> RuntimeSettings:
    return settings()


@cache
def keys_as(sender: str) -> SenderKeys:
    """Return the keys with which a component of a simulated installation signs commands."""
    return operator_keys(b"simulator", sender)


class _Watched:
    """A host whose failures are recorded; otherwise it is kept running as in production."""

    def __init__(self, host: Host, cluster: "Cluster", process: str) -> None:
        self.name = host.name
        self._host, self._cluster, self._process = host, cluster, process

    async def run(self) -> None:
        try:
            await self._host.run()
        except PartitionStopped as stopped:
            self._cluster.named.append(str(stopped))
            raise
        except (*OUTAGE, StrayCancellation):
            raise
        except Exception as error:
            self._cluster.died.append(f"{self._process} {self.name}: {error!r}")
            raise

    async def ready(self) -> None:
        await self._host.ready()


class _HealthNotes(Health):
    """Records hosts that hang: in the simulator every wait ends, so a hang is a violation."""

    def __init__(self, cluster: "Cluster", process: str) -> None:
        super().__init__()
        self._cluster, self._process = cluster, process

    def mark_failing(self, host: str, why: FailureReason) -> None:
        super().mark_failing(host, why)
        if why == "hung":
            self._cluster.died.append(f"hung: {self._process} {host}")


class Process:
    """Some hosts behind one port. `generation` counts the starts of all processes, from 1."""

    def __init__(self, cluster: "Cluster", generation: int) -> None:
        self.generation, self.name = generation, f"p{generation}"
        self._cluster = cluster
        self.rng = Random(f"{cluster.seed}/{self.name}")  # runs must repeat
        self.port = FaultyPort(cluster.broker, self.name, self.rng)
        self.port.on_crash = self._crashed
        self.hosts = tuple(cluster.build(self))
        health = _HealthNotes(cluster, self.name)
        self._tasks = [
            asyncio.create_task(keep(_Watched(host, cluster, self.name), health))
            for host in self.hosts
        ]

    def fresh_id(self) -> str:
        return str(UUID(int=self.rng.getrandbits(128), version=4))

    def runtime(self, service: str) -> Runtime:
        """The bundle of a service; all processes that ask for `service` share its database."""
        return Runtime(
            name=service,
            settings=_settings(),
            log=self.port,
            store=FaultyStore(self.port, self._cluster.database(service)),
            blobs=FaultyBlobs(self.port, self._cluster.storage),
            seal=Sealer(self._cluster.keys),
            sender=Sender(self.port, self._cluster.streams, self.fresh_id, keys_as(service)),
            clock=self.port,
            keys=keys_as(service),
        )

    def _crashed(self) -> None:
        asyncio.get_running_loop().call_soon(self._cluster.crash, self)

    def end(self) -> None:
        self.port.alive = False
        for task in self._tasks:
            task.cancel()
        for host in self.hosts:
            stopped: Mapping[int, PartitionStopped] = getattr(host, "stopped", {})
            self._cluster.named.extend(str(stop) for stop in stopped.values())


class Cluster:
    """`build` gives the hosts of a process. `actions`: what a step of each kind does; a scenario
    may add its own. named: partitions that stopped, and why; died: hosts that ended with an error
    or hung.
    """

    def __init__(
        self,
        broker: Broker,
        seed: int,
        streams: Mapping[str, Stream],
        build: Callable[[Process], Sequence[Host]],
        size: int = PROCESSES,
    ) -> None:
        self.broker, self.seed, self.streams = broker, seed, streams
        self.build, self.size = build, size
        self.storage, self.keys = Storage(broker.clock.true_ms), MemoryKeyStore()
        self.databases: dict[str, Database] = {}
        self.processes: list[Process] = []
        self.named: list[str] = []
        self.died: list[str] = []
        self.down = False  # all processes are down, and none may start
        self.started = 0
        self.actions: dict[str, Action] = {
            "crash": self._plant_crash,
            "pause": self._pause,
            "overlap": self._overlap,
            "rebalance": self._rebalance,
            "clock jump": self._jump,
            "clock ahead": self._run_ahead,
            "slow reader": self._slow,
            "broker restart": self._restart_broker,
            "store away": self._store_away,
            "blobs away": self._blobs_away,
            "snapshot torn": self._tear,
            "snapshot stale": self._stale,
            "stray cancellation": self._cancel,
        }

    def database(self, service: str) -> Database:
        if service not in self.databases:
            self.databases[service] = Database(self.broker)
        return self.databases[service]

    # --- start and end ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start what is missing, unless all are to be down."""
        while not self.down and len(self.processes) < self.size:
            self.started += 1
            self.processes.append(Process(self, self.started))

    def crash(self, process: Process) -> None:
        if process not in self.processes:
            return
        self.broker.tally.add("crash")
        self.broker.trace(f"{process.name} crashes")
        self.processes.remove(process)
        process.end()
        self.broker.later(SESSION_MS, lambda: self.expire(process))
        self.broker.later(self.broker.rng.uniform(200, RESTART_MS_MAX), self.start)

    def expire(self, process: Process) -> None:
        for group in list(self.broker.groups):
            self.broker.expire(group, process.name)

    def stop_all(self) -> None:
        """All processes go down, until `down` is false and `start` is called."""
        self.down = True
        for process in list(self.processes):
            self.crash(process)

    def end(self) -> None:
        self.down = True
        for process in self.processes:
            process.end()

    # --- faults -----------------------------------------------------------------------------------

    async def chaos(self, faults: Faults) -> None:
        """Apply the fault steps at their times; returns when all have ended."""
        async with asyncio.TaskGroup() as group:
            begun_ms = 0
            for step in faults.steps:
                await asyncio.sleep((step.at_ms - begun_ms) / 1_000)
                begun_ms = step.at_ms
                group.create_task(self._take(step))

    async def _take(self, step: FaultStep) -> None:
        rng = Random(f"{self.seed}/{step.at_ms}/{step.kind}")  # runs must repeat
        try:
            await self.actions[step.kind](rng)
        except PartitionStopped as stopped:
            self.named.append(f"operator: {stopped}")

    def heal(self) -> None:
        self.broker.trace("faults stop")
        self.broker.healed = True
        for process in self.processes:
            process.port.crash_after = process.port.cancel_after = None
            process.port.resume()
        self.start()
        for group in list(self.broker.groups):
            self.broker.assign(group)

    def _note(self, kind: str, what: str) -> None:
        self.broker.tally.add(kind)
        self.broker.trace(what)

    async def _plant_crash(self, rng: Random) -> None:
        if self.processes:
            rng.choice(self.processes).port.crash_after = rng.randint(1, CRASH_WITHIN)

    async def _cancel(self, rng: Random) -> None:
        """Cancel a random task of a random host without asking the host to stop."""
        if self.processes:
            rng.choice(self.processes).port.cancel_after = rng.randint(1, CRASH_WITHIN)

    async def _pause(self, rng: Random) -> None:
        if not self.processes:
            return
        process, pause_s, session_s = (
            rng.choice(self.processes),
            rng.uniform(0.2, 10),
            SESSION_MS / 1_000,
        )
        self._note("pause", f"{process.name} pauses for {pause_s:.1f} s")
        process.port.pause()
        await asyncio.sleep(min(pause_s, session_s))
        if pause_s > session_s:
            members = {
                group: self.broker.expire(group, process.name) for group in list(self.broker.groups)
            }
            await asyncio.sleep(pause_s - session_s)
            if process in self.processes:
                for group, queues in members.items():
                    for member, queue in queues.items():
                        # A shorter pause may have ended before, and the process left the group:
                        # nobody would serve the partitions of a member that it has given up.
                        if member in process.port.members:
                            self.broker.join(group, member, queue)
        self.broker.trace(f"{process.name} goes on")
        process.port.resume()

    async def _overlap(self, rng: Random) -> None:
        """A group assigns all partitions to every member, so that all believe to be owners."""
        groups = sorted(group for group, members in self.broker.groups.items() if members)
        if not groups:
            return
        group = rng.choice(groups)
        self._note("overlap", f"every member owns all of {group[1]}")
        for member in sorted(self.broker.groups[group]):
            self.broker.announce(group, member, self.broker.in_use(group[1]))
        await asyncio.sleep(rng.uniform(1, 6))
        self.broker.assign(group)

    async def _rebalance(self, rng: Random) -> None:
        """A member joins while records are in flight, gets its share, and leaves again."""
        flying: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def fly(topic: str) -> None:
            if not flying.done():
                flying.set_result(topic)

        self.broker.on_flight = fly
        await asyncio.wait((flying,), timeout=FLIGHT_S_MAX)
        journal = flying.result() if flying.done() else None
        for group in sorted(self.broker.groups):
            if journal == group[1].replace(".commands.", ".journal."):
                self._note("rebalance", f"{group[0]} rebalances inside a batch")
                self.broker.join(group, "guest")
        await asyncio.sleep(rng.uniform(0.3, 4))
        for group in sorted(self.broker.groups):
            self.broker.leave(group, "guest")

    async def _jump(self, rng: Random) -> None:
        jump_ms = rng.randint(1, 40_000)
        self._note("clock jump", f"the broker's clock jumps back by {jump_ms} ms")
        self.broker.clock.skew_ms -= jump_ms

    async def _run_ahead(self, rng: Random) -> None:
        ahead_ms = rng.randint(2 * AHEAD_MS_MAX, 2 * HOUR_MS)
        self._note("clock ahead", f"the broker's clock is {ahead_ms} ms ahead")
        self.broker.clock.skew_ms += ahead_ms
        await asyncio.sleep(rng.uniform(0.5, 6))
        self.broker.clock.skew_ms -= ahead_ms

    async def _slow(self, rng: Random) -> None:
        if self.processes:
            process = rng.choice(self.processes)
            self._note("slow reader", f"{process.name} reads slowly")
            process.port.slow = True
            await asyncio.sleep(rng.uniform(2, 8))
            process.port.slow = False

    async def _restart_broker(self, rng: Random) -> None:
        """Restart the broker: appends in flight fail, acknowledged records stay."""
        self._note("broker restart", "the broker goes down")
        await self.lose_broker(rng.uniform(0.3, 5))

    async def lose_broker(self, away_s: float) -> None:
        """The broker is away for so long; all groups are assigned anew after that."""
        self.broker.away = True
        await asyncio.sleep(away_s)
        self.broker.away = False
        self.broker.trace("the broker is up")
        for group in list(self.broker.groups):
            self.broker.assign(group)

    async def _store_away(self, rng: Random) -> None:
        if self.databases:
            name = rng.choice(sorted(self.databases))
            self._note("store away", f"the database of {name} goes down")
            self.databases[name].away = True
            await asyncio.sleep(rng.uniform(0.3, 5))
            self.databases[name].away = False

    async def _blobs_away(self, rng: Random) -> None:
        self._note("blobs away", "object storage goes down")
        self.storage.away = True
        await asyncio.sleep(rng.uniform(0.3, 8))
        self.storage.away = False

    async def _tear(self, rng: Random) -> None:
        """Damage a snapshot or delete its blob."""
        keys = sorted(key for key in self.storage.bodies if key.startswith("snapshots/"))
        if keys:
            key = rng.choice(keys)
            self._note("snapshot torn", f"{key} is torn")
            body = self.storage.bodies.pop(key)
            if rng.random() < 0.7:
                self.storage.bodies[key] = body[: len(body) // 2]

    async def _stale(self, rng: Random) -> None:
        """Write an old pointer again, and restore the blob that it names."""
        pointers = [
            record
            for (topic, _), records in sorted(self.broker.history.items())
            if topic == SNAPSHOTS.name
            for record in records[:-1]
        ]
        if pointers:
            record = rng.choice(pointers)
            self._note("snapshot stale", f"an old snapshot comes back: {record.value[:150]!r}")
            blob = msgspec.json.decode(record.value, type=Pointer).blob
            self.storage.bodies[blob] = self.storage.ever[blob]
            self.broker.put(SNAPSHOTS.name, record.partition, record.key, record.value)
