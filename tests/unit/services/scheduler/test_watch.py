"""The watcher against a log: what it reports, and that it reports nothing while it cannot read."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from schemas.envelope import Entry
from schemas.node import NodeSeen, WithdrawNodeKeys
from schemas.pool import NodesObserved, ObserveNodes, RegisterNode
from schemas.streams import PARTITIONS
from schemas.telemetry import Heartbeat
from schemas.topics import HEARTBEATS, POOL, SNAPSHOTS, STREAMS
from services.scheduler.app import POOLS
from services.scheduler.watch import Watcher
from simulator.control_plane.samples import POOL as NAME
from simulator.control_plane.samples import node
from tests.unit.tunery.runtime.journal.memory_fixture import GARBAGE
from tests.virtual_time import on_virtual_time
from tunery.platform.bus.sender_keys import NODES, keys_of
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.codec import codec_of, decode_record
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.levels import LogLevels

TTL_MS = 300
BEAT_MS = 30
POLL_MS = 10
WAIT_S = 180


class FlakyLog(MemoryLog):
    """A log whose ends cannot be read while it is `away`, or the partition is."""

    away = False
    away_partition: int | None = None

    async def ends(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        is_away = self.away or self.away_partition in partitions
        if is_away and topic == HEARTBEATS.name:
            raise Unavailable("the broker does not answer")
        return await super().ends(topic, partitions)


@dataclass
class WatchFixture:
    log: FlakyLog = field(default_factory=lambda: FlakyLog(session_timeout_ms=50))
    clock: Clock = field(default_factory=SystemClock)
    blobs: Blobs = field(default_factory=MemoryBlobs)
    name: str = "scheduler"
    keys: SenderKeys = UNSIGNED
    levels: LogLevels = field(default_factory=LogLevels)

    @property
    def sender(self) -> Sender:
        return Sender(self.log, STREAMS, keys=self.keys)

    def observed(self) -> list[NodeSeen]:
        """What the pool has accepted so far."""
        seen_nodes: list[NodeSeen] = []
        for record in self.log.topics[POOL.journal.name][partition_of(NAME.encode())].records:
            entry = decode_record(record.value)
            if isinstance(entry, Entry):
                for event in codec_of(POOL).events(entry):
                    if isinstance(event, NodesObserved):
                        seen_nodes += event.seen
        return seen_nodes

    def said(self) -> list[ObserveNodes]:
        fixture = self.log.topics[POOL.commands.name][partition_of(NAME.encode())]
        bodies = [msgspec.json.decode(record.value)["body"] for record in fixture.records]
        return [
            msgspec.convert(body, ObserveNodes)
            for body in bodies
            if body["type"] == "ObserveNodes.v1"
        ]

    async def beat(
        self, incarnation: str = "a-1", keys: SenderKeys = UNSIGNED, node_id: str = "a"
    ) -> None:
        body = Heartbeat(pool=NAME, node_id=node_id, incarnation=incarnation, leases=())
        await self.log.send(
            HEARTBEATS.name, node_id.encode(), keys.sign(NODES, msgspec.json.encode(body))
        )

    async def beats(self, seconds: float) -> None:
        for _ in range(int(1_000 * seconds / BEAT_MS)):
            await self.beat()
            await asyncio.sleep(BEAT_MS / 1_000)


@asynccontextmanager
async def watching(
    *nodes: RegisterNode, keys: SenderKeys = UNSIGNED, log: FlakyLog | None = None
) -> AsyncIterator[WatchFixture]:
    """A pool with its owner and its watcher, and nodes that have registered."""
    fixture = WatchFixture(log or FlakyLog(session_timeout_ms=50), keys=keys)
    await fixture.log.create((POOL.commands, POOL.journal, HEARTBEATS, SNAPSHOTS), PARTITIONS)
    limits = HostLimits(idle_wait_ms=20, retry_ms=10)
    hosts = (
        AggregateHost(fixture, POOLS, limits=limits),
        Watcher(fixture, TTL_MS, POLL_MS, 60_000),
    )
    tasks = [asyncio.create_task(host.run()) for host in hosts]
    try:
        for host in hosts:
            await host.ready()
        for observed in nodes:
            sender = Sender(fixture.log, STREAMS, keys=node_keys("a") if keys.sender else UNSIGNED)
            await sender.send(POOL, NAME, "", observed)
        yield fixture
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)


async def until_silent(fixture: WatchFixture, silent: bool) -> NodeSeen:
    async with asyncio.timeout(WAIT_S):
        while not any(observed.silent is silent for observed in fixture.observed()):  # noqa: ASYNC110  # a log has no event to wait for
            await asyncio.sleep(0.01)
    return next(observed for observed in fixture.observed() if observed.silent is silent)


@on_virtual_time
async def test_a_node_that_falls_silent_is_lost_and_comes_back() -> None:
    async with watching(node()) as fixture:
        await fixture.beats(2 * TTL_MS / 1_000)
        assert fixture.said() == []
        last = fixture.log.topics[HEARTBEATS.name][partition_of(b"a")].records[-1].timestamp
        lost = await until_silent(fixture, True)
        assert (lost.node_id, lost.incarnation, lost.last_seen) == ("a", "a-1", last)
        beating = asyncio.create_task(fixture.beats(WAIT_S))
        assert (await until_silent(fixture, False)).last_seen > last
        beating.cancel()


def node_keys(node_id: str) -> SenderKeys:
    return keys_of(b"s" * 32, f"node.{node_id}")


@on_virtual_time
async def test_security_c2_heartbeats_of_others_keep_no_node_alive() -> None:
    """A node is lost although others, and one without keys, say that it lives."""
    async with watching(node(), keys=keys_of(b"s" * 32, "scheduler")) as fixture:

        async def beats(*senders: SenderKeys) -> None:
            while True:
                for keys in senders:
                    await fixture.beat(keys=keys)
                await asyncio.sleep(BEAT_MS / 1_000)

        forging = asyncio.create_task(beats(UNSIGNED, node_keys("b"), keys_of(b"t" * 32, "node.a")))
        await fixture.beat(keys=node_keys("a"))
        await until_silent(fixture, True)
        beating = asyncio.create_task(beats(node_keys("a")))
        await until_silent(fixture, False)
        forging.cancel()
        beating.cancel()


@on_virtual_time
async def test_the_agent_of_a_cluster_beats_for_all_its_nodes() -> None:
    async with watching(keys=keys_of(b"s" * 32, "scheduler")) as fixture:
        agent = Sender(fixture.log, STREAMS, keys=node_keys("a"))
        await agent.send(POOL, NAME, "", node("a:h100", "a-1"))

        async def beats() -> None:
            while True:
                await fixture.beat(keys=node_keys("a"), node_id="a:h100")
                await asyncio.sleep(BEAT_MS / 1_000)

        await fixture.beat(keys=node_keys("a"), node_id="a:h100")
        assert (await until_silent(fixture, True)).node_id == "a:h100"
        beating = asyncio.create_task(beats())
        await until_silent(fixture, False)
        beating.cancel()


@on_virtual_time
async def test_security_c2_a_withdrawn_key_keeps_no_node_alive() -> None:
    """The node comes back with its second key; what its first one signs is refused."""
    async with watching(node(), keys=keys_of(b"s" * 32, "scheduler")) as fixture:
        operator = Sender(fixture.log, STREAMS, keys=keys_of(b"s" * 32, "gateway"))
        await operator.send(POOL, NAME, "", WithdrawNodeKeys(node_id="a"))
        again = Sender(fixture.log, STREAMS, keys=node_keys("a#2"))
        await again.send(POOL, NAME, "", node(incarnation="a-2"))

        async def beats(keys: SenderKeys) -> None:
            while True:
                await fixture.beat("a-2", keys)
                await asyncio.sleep(BEAT_MS / 1_000)

        forging = asyncio.create_task(beats(node_keys("a")))
        assert (await until_silent(fixture, True)).incarnation == "a-2"
        beating = asyncio.create_task(beats(node_keys("a#2")))
        await until_silent(fixture, False)
        forging.cancel()
        beating.cancel()


@on_virtual_time
async def test_no_node_is_lost_while_the_watcher_cannot_read() -> None:
    async with watching(node()) as fixture:
        await fixture.beats(0.1)
        fixture.log.away = True
        await asyncio.sleep(3 * TTL_MS / 1_000)
        assert fixture.said() == []
        fixture.log.away = False
        await fixture.beats(2 * TTL_MS / 1_000)
        assert fixture.said() == []


@on_virtual_time
async def test_sched_a11_nodes_of_a_partition_without_leader_are_not_lost() -> None:
    """Finding A11: the watcher asked partition 0 whether it could read all eight."""
    other = next(f"n{i}" for i in range(99) if partition_of(f"n{i}".encode()) != partition_of(b"a"))
    async with watching(node(), node(other, "n-1")) as fixture:
        await fixture.beats(0.1)
        fixture.log.away_partition = partition_of(b"a")
        lost = await until_silent(fixture, True)
        assert lost.node_id == other, "whose partition can be read, and which is silent"
        await asyncio.sleep(2 * TTL_MS / 1_000)
        assert {seen.node_id for seen in fixture.observed()} == {other}
        fixture.log.away_partition = None
        async with asyncio.timeout(WAIT_S):
            while "a" not in {seen.node_id for seen in fixture.observed()}:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.01)


@on_virtual_time
async def test_unreadable_heartbeats_are_passed_over() -> None:
    async with watching(node()) as fixture:
        for value in GARBAGE:
            await fixture.log.send(HEARTBEATS.name, b"a", value)
        await fixture.beats(2 * TTL_MS / 1_000)
        assert fixture.said() == []
        assert (await until_silent(fixture, True)).node_id == "a"


class BusyLog(FlakyLog):
    """A log that is asked by every look of the watcher, and gets heartbeats of others meanwhile."""

    others = 0  # heartbeats that come before each answer
    asked: list[tuple[int, ...]]  # partitions of each request for ends

    async def ends(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        if topic == HEARTBEATS.name:
            self.asked.append(tuple(partitions))
            for number in range(self.others):
                name = f"n{number % 997}"
                body = Heartbeat(pool=NAME, node_id=name, incarnation="x", leases=())
                where = partition_of(name.encode())
                self.put(topic, where, name.encode(), msgspec.json.encode(body))
        return await super().ends(topic, partitions)


@on_virtual_time
async def test_review2_e1_a_dead_node_is_noticed_beside_thousands_that_beat() -> None:
    """A look that read 2,000 heartbeats made the silence of all nodes begin anew."""
    for others in (2_000, 4_321):
        log = BusyLog(session_timeout_ms=50)
        log.others, log.asked = others, []
        async with watching(node(), log=log) as fixture:
            assert (await until_silent(fixture, True)).node_id == "a"


@on_virtual_time
async def test_review2_e1_a_look_asks_once_for_the_ends_of_all_partitions() -> None:
    log = BusyLog(session_timeout_ms=50)
    log.asked = []
    async with watching(node(), log=log) as fixture:
        beating = asyncio.create_task(fixture.beats(WAIT_S))
        await asyncio.sleep(TTL_MS / 1_000)
        beating.cancel()
        assert set(log.asked) == {tuple(range(PARTITIONS))}
        looks = TTL_MS // POLL_MS
        assert len(log.asked) <= 2 * looks, "heartbeats do not make it look more often"


@on_virtual_time
async def test_review2_e1_two_dead_nodes_are_noticed_while_a_third_beats_in_the_crowd() -> None:
    names = [f"dead-{number}" for number in range(2)]
    log = BusyLog(session_timeout_ms=50)
    log.others, log.asked = 2_500, []
    async with watching(node(), *(node(name, f"{name}-1") for name in names), log=log) as fixture:
        beating = asyncio.create_task(fixture.beats(WAIT_S))
        async with asyncio.timeout(WAIT_S):
            while not silent_nodes(fixture) >= set(names):  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.01)
        beating.cancel()
        assert silent_nodes(fixture) == set(names)


def silent_nodes(fixture: WatchFixture) -> set[str]:
    return {seen.node_id for seen in fixture.observed() if seen.silent}
