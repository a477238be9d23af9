"""A journal record that cannot be decoded stops its partition, loudly; the others go on."""

import logging
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from examples.first_stream import SEATS, HoldSeats
from schemas.envelope import Source
from simulator.event_core.streams import STREAMS, CountSeats, react_seats
from tests.hosts import running
from tests.unit.tunery.runtime.hosts import toy_service
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, World, envelope, until
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.acceptance import Unreadable
from tunery.runtime.store.memory import MemoryStore

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())
OTHER = next(key for key in map(str, range(99)) if partition_of(key.encode()) != PARTITION)


@pytest_asyncio.fixture
async def world() -> World:
    """A journal of two entries in one partition; the first is of a later version."""
    world = await World(name="alarmed").create()
    async with running(world.host()):
        for _ in range(2):
            await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        await world.decided(KEY, 2)
    spoil(world, b"SeatsHeld.v1", b"SeatsHeld.v9")
    return world


def spoil(world: Any, old: bytes, new: bytes) -> None:
    held = world.log.topics[SEATS.journal.name][PARTITION].records
    held[1] = held[1]._replace(value=held[1].value.replace(old, new))


def metric(host: str, partition: int = PARTITION) -> float | None:
    labels = {"host": host, "stream": "seats", "partition": str(partition)}
    return REGISTRY.get_sample_value("tunery_partition_stopped", labels)


def said(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    (record,) = (record for record in caplog.records if record.levelno == logging.CRITICAL)
    fields: dict[str, Any] = record.__dict__["fields"]
    return fields | {"event": record.getMessage()}


async def test_an_owner_stops_and_says_where_to_look(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    host = world.host()
    async with running(host):
        await until(lambda: PARTITION in host.stopped)
        await world.sender.send(SEATS, OTHER, OTHER, HoldSeats(seats=1))
        await world.decided(OTHER, 1)
    assert isinstance(host.stopped[PARTITION], Unreadable)
    assert metric(host.name) == 1
    assert metric(host.name, partition_of(OTHER.encode())) == 0
    line = said(caplog)
    assert (line["event"], line["host"]) == ("partition.stopped", host.name)
    assert str(line["why"]).startswith(f"seats/{PARTITION} at offset 1: ")
    assert "Invalid value 'SeatsHeld.v9'" in str(line["why"])
    assert line["kind"] == "Unreadable"
    assert line["look"] == f"tunery journal inspect seats {PARTITION} 1"


async def test_a_command_that_must_not_be_lost_says_where_to_look(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    host = world.host()
    async with running(host):
        source = Source("tally", 0, 0, 0, 0)
        bad = envelope(OTHER, CountSeats(seats=1), str(uuid4()), source=source)
        world.log.put(SEATS.commands.name, partition_of(OTHER.encode()), b"", bad)
        await until(lambda: len(host.stopped) == 2)
    looks = [
        record.__dict__["fields"]["look"]
        for record in caplog.records
        if record.levelname == "CRITICAL"
    ]
    assert f"tunery journal inspect seats {partition_of(OTHER.encode())} 0 --commands" in looks


async def test_the_alarm_ends_when_the_partition_is_served_again(world: World) -> None:
    host = world.host()
    async with running(host):
        await until(lambda: PARTITION in host.stopped)
    spoil(world, b"SeatsHeld.v9", b"SeatsHeld.v1")
    again = world.host()
    async with running(again):
        assert again.stopped == {}
    assert metric(again.name) == 0


async def test_reactions_stop_at_an_undecodable_record(world: World) -> None:
    reactor = Reactor(world, SEATS, react_seats, streams=STREAMS, limits=QUICK)
    async with running(reactor):
        await until(lambda: PARTITION in reactor.stopped)
    assert metric(reactor.name) == 1


async def test_projections_stop_at_an_undecodable_record() -> None:
    async with toy_service.toy() as service:
        sent = await service.send(KEY, HoldSeats(seats=1))
        async with running(Projector(service.runtime, toy_service.HELD)):
            await toy_service.await_result(service.runtime.store, sent)
        spoil(service.world, b"SeatsHeld.v1", b"SeatsHeld.v9")
        fresh = service.again(MemoryStore(service.runtime.clock))
        projector = Projector(fresh.runtime, toy_service.HELD)
        async with running(projector):
            await until(lambda: metric(projector.name) == 1)
            assert metric(projector.name, partition_of(OTHER.encode())) == 0
