"""Events of old versions are read as the newest version."""

from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from schemas.envelope import Context, Message, Rejected, Repeated
from schemas.streams import PARTITIONS, Stream
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, World, until
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.acceptance import Unreadable
from tunery.runtime.tools.verify import replay
from tunery.runtime.verbs import Aggregate

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())


class Put(Message):
    amount: int


class Kept(Message):
    """First version, in whole units."""

    amount: int


class KeptV2(Message):
    amount_milli: int


class KeptV3(Message):
    amount_milli: int
    currency: str


Sums = Map[str, int]
OLD = Stream("kept", "tenant", "toy", ("toy",), Put, Kept | Rejected | Repeated)
NEW = replace(
    OLD,
    event=Kept | KeptV2 | KeptV3 | Rejected | Repeated,
    upcasts=(
        (Kept, lambda old: KeptV2(amount_milli=1_000 * old.amount)),
        (KeptV2, lambda old: KeptV3(amount_milli=old.amount_milli, currency="EUR")),
    ),
)


def decide_old(_: Sums, command: Put, __: Context) -> tuple[Message, ...]:
    return (Kept(amount=command.amount),)


def evolve_old(state: Sums, event: Any, context: Context) -> Sums:
    return state.set(context.key, state.get(context.key, 0) + event.amount)


def decide_new(_: Sums, command: Put, __: Context) -> tuple[Message, ...]:
    return (KeptV3(amount_milli=1_000 * command.amount, currency="EUR"),)


def evolve_new(state: Sums, event: Any, context: Context) -> Sums:
    """Fold the newest version alone."""
    assert isinstance(event, KeptV3)
    return state.set(context.key, state.get(context.key, 0) + event.amount_milli)


BEFORE = Aggregate(OLD, 1, Sums(), Sums, decide_old, evolve_old)
TODAY = Aggregate(NEW, 2, Sums(), Sums, decide_new, evolve_new)


async def put(world: World, host: AggregateHost[Any], amount: int, count: int) -> None:
    journal = world.log.topics[OLD.journal.name][PARTITION]
    async with running(host):
        await Sender(world.log, {"kept": OLD}).send("kept", KEY, KEY, Put(amount=amount))
        await until(lambda: len(journal.records) >= count or bool(host.stopped))


async def old_and_new(today: Aggregate[Any]) -> tuple[World, AggregateHost[Any]]:
    """A journal that an old and then a new release have written."""
    world = World()
    await world.create()
    await world.log.create([OLD.commands, OLD.journal], PARTITIONS)
    await put(world, AggregateHost(world, BEFORE, limits=QUICK), 2, 2)
    host = AggregateHost(world, today, limits=QUICK)
    await put(world, host, 3, 4)
    return world, host


async def test_an_old_event_is_read_as_the_newest_and_its_bytes_stay() -> None:
    world, host = await old_and_new(TODAY)
    assert host.stopped == {}
    records = world.log.topics[OLD.journal.name][PARTITION].records
    assert b'"type":"Kept.v1","amount":2' in records[1].value
    assert b'"type":"Kept.v3"' in records[3].value
    assert replay(TODAY, PARTITION, records).fold.state[KEY] == 5_000


async def test_an_upcast_that_fails_stops_the_partition_and_is_named() -> None:
    broken = replace(NEW, upcasts=((Kept, lambda old: KeptV2(amount_milli=old.sum)),))
    _, host = await old_and_new(replace(TODAY, stream=broken))
    stopped = host.stopped[PARTITION]
    assert isinstance(stopped, Unreadable)
    assert stopped.offset == 1
    assert "Kept was not brought up to date" in stopped.why


async def test_an_unknown_version_stops_the_partition() -> None:
    unknown = replace(OLD, event=KeptV3 | Rejected | Repeated)
    _, host = await old_and_new(replace(TODAY, stream=unknown))
    with pytest.raises(Unreadable, match=r"Invalid value 'Kept\.v1'"):
        raise host.stopped[PARTITION]
