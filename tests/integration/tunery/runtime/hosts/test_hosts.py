"""Hosts on the real broker: hand-over of partitions, a broker restart, a start from a snapshot."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import pytest_asyncio

from examples import first_stream
from examples.first_stream import SEATS_AGGREGATE, HoldSeats, ReleaseSeats
from schemas.streams import PARTITIONS, Stream
from schemas.topics import SNAPSHOTS
from simulator.event_core.streams import STREAMS, TALLY_AGGREGATE, react_seats
from tests.hosts import running
from tests.log_lines import logged
from tunery.local.stack import Stack
from tunery.platform.bus.kafka import KafkaLog, KafkaSettings
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.abstract import AppendUnknown, Log, Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.journal.snapshots import Snapshots
from tunery.runtime.levels import LogLevels
from tunery.runtime.tools.verify import replay_stream
from tunery.runtime.verbs import Aggregate

WAIT_S = 180
TENANTS = tuple(f"tenant-{number}" for number in range(10))


@dataclass
class JournalPorts:
    name: str
    log: Log
    clock: Clock
    blobs: Blobs
    keys: SenderKeys = UNSIGNED
    levels: LogLevels = field(default_factory=LogLevels)


@dataclass
class World:
    """The streams of the first-stream tutorial, under names that no other test uses."""

    kafka: KafkaSettings
    streams: dict[str, Stream]
    logs: list[KafkaLog]
    blobs: MemoryBlobs

    def connect(self) -> JournalPorts:
        """Ports with a Kafka client of their own, as another process would have."""
        log = KafkaLog(self.kafka)
        self.logs.append(log)
        return JournalPorts(f"toy{self.streams['seats'].name}", log, SystemClock(), self.blobs)

    def aggregate(self, aggregate: Aggregate[Any]) -> Aggregate[Any]:
        return replace(aggregate, stream=self.streams[aggregate.stream.name])

    def owners(
        self, ports: JournalPorts, limits: HostLimits | None = None
    ) -> list[AggregateHost[Any]]:
        both = (SEATS_AGGREGATE, TALLY_AGGREGATE)
        return [
            AggregateHost(ports, self.aggregate(aggregate), limits=limits) for aggregate in both
        ]

    def reactor(self, ports: JournalPorts) -> Reactor:
        return Reactor(ports, self.streams["seats"], react_seats, streams=self.streams)

    async def totals(self) -> tuple[int, int, int]:
        """Accepted entries of `seats`, seats held, seats tallied."""
        log = self.logs[0]
        seats = await replay_stream(log, self.aggregate(SEATS_AGGREGATE))
        tally = await replay_stream(log, self.aggregate(TALLY_AGGREGATE))
        counted = sum(total for partition in tally for total in partition.fold.state.values())
        tenants = [tenant for partition in seats for tenant in partition.fold.state.values()]
        held = sum(len(tenant.held) for tenant in tenants)
        return sum(partition.accepted for partition in seats), held, counted


@pytest_asyncio.fixture
async def world(
    servers: Stack, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    # No hold ends by itself during a test, however slow the machine is.
    monkeypatch.setattr(first_stream, "HOLD_MS", 600_000)
    mark = request.node.name.removeprefix("test_")[:40]
    streams = {key: replace(stream, name=f"{key}.{mark}") for key, stream in STREAMS.items()}
    world = World(servers.kafka_as(session_timeout_ms=2_000), streams, [], MemoryBlobs())
    log = world.connect().log
    topics = [topic for stream in streams.values() for topic in (stream.commands, stream.journal)]
    await log.create([*topics, SNAPSHOTS], PARTITIONS)
    yield world
    for log in world.logs:
        await log.close()


async def until(condition: Callable[[tuple[int, int, int]], bool], world: World) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition(await world.totals()):  # noqa: ASYNC110  # it asks the broker
            await asyncio.sleep(0.1)


async def hold_one_seat_each(world: World, sender: Sender) -> None:
    for tenant in TENANTS:
        await sender.send(world.streams["seats"], tenant, tenant, HoldSeats(seats=1))


async def test_a_process_takes_over_the_partitions_of_one_that_stops(world: World) -> None:
    first, second = world.connect(), world.connect()
    sender = Sender(first.log, world.streams)
    hosts: list[Any] = [*world.owners(first), world.reactor(first)]
    served = ExitStack()
    async with running(*world.owners(second), world.reactor(second)):
        async with running(*hosts):
            for _ in range(3):
                await hold_one_seat_each(world, sender)
            await until(lambda totals: totals == (30, 30, 30), world)
            lines = served.enter_context(logged())
        await hold_one_seat_each(world, sender)
        await until(lambda totals: totals == (40, 40, 40), world)
    assert all(not host.stopped for host in hosts)
    served.close()
    takeovers = lines.of("owner.serving")
    assert takeovers
    assert max(line["folded"] for line in takeovers) <= 3, "claims, and what was on its way"


async def test_a_broker_restart_loses_and_repeats_nothing(world: World, servers: Stack) -> None:
    ports = world.connect()
    sender = Sender(ports.log, world.streams)
    async with running(*world.owners(ports), world.reactor(ports)):
        await hold_one_seat_each(world, sender)
        await until(lambda totals: totals[2] == 10, world)
        await servers.stop("kafka")
        for _ in range(3):
            async with asyncio.timeout(WAIT_S):  # it is refused, and not kept for the broker
                with pytest.raises((Unavailable, AppendUnknown)):
                    await sender.send(
                        world.streams["seats"], "tenant-1", "tenant-1", HoldSeats(seats=1)
                    )
        await servers.start("kafka")
        releases = 0
        async with asyncio.timeout(WAIT_S):
            while True:
                releases += 1  # each try sends a new command
                try:
                    body = ReleaseSeats(seats=9)
                    await sender.send(world.streams["seats"], "tenant-2", "tenant-2", body)
                    break
                except (Unavailable, AppendUnknown):
                    await asyncio.sleep(0.2)
        await until(lambda totals: totals[0] >= 11, world)
    accepted, held, counted = await world.totals()
    # The sends that failed may have been decided, at most once each.
    assert 11 <= accepted <= 13 + releases
    assert 10 <= held == counted <= 13


async def test_an_owner_starts_from_its_snapshot(world: World) -> None:
    ports = world.connect()
    sender = Sender(ports.log, world.streams)
    busy = partition_of(TENANTS[0].encode())
    async with running(*world.owners(ports, HostLimits(snapshot_every=3))):
        for _ in range(5):
            await hold_one_seat_each(world, sender)
        await until(lambda totals: totals[0] == 50, world)
        async with asyncio.timeout(WAIT_S):
            while not world.blobs.bodies:  # noqa: ASYNC110  # a plain dict
                await asyncio.sleep(0.05)
    aggregate = world.aggregate(SEATS_AGGREGATE)
    loaded = await Snapshots(ports, aggregate, busy).load()
    assert loaded.position.offset > 3
    assert loaded.command_id
    async with running(*world.owners(ports)):
        await hold_one_seat_each(world, sender)
        await until(lambda totals: totals[0] == 60, world)
