from dataclasses import replace
from hashlib import sha256

import msgspec
import pytest
import pytest_asyncio
from immutables import Map

from examples.first_stream import (
    SEATS,
    SEATS_AGGREGATE,
    HoldSeats,
    ReleaseSeats,
    Seats,
    TenantSeats,
)
from schemas.topics import SNAPSHOTS
from schemas.units import Ms
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import GARBAGE, QUICK, World, until
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.codec import canonical
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.snapshots import Pointer, SnapshotReader, Snapshots, revive
from tunery.runtime.tools.verify import replay

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())
OFTEN = replace(QUICK, snapshot_every=2)


@pytest_asyncio.fixture
async def world() -> World:
    """A journal of one claim and six entries, with snapshots after two, four and six."""
    world = await World().create()
    async with running(world.host("a", OFTEN)):
        for number in range(6):
            body = ReleaseSeats(seats=1) if number % 2 else HoldSeats(seats=1)
            await world.sender.send(SEATS, KEY, KEY, body)
            if number % 2:
                await until(lambda: len(pointers(world)) == (number + 1) // 2)  # noqa: B023  # awaited at once
    return world


def pointers(world: World) -> list[Pointer]:
    partition = world.log.topics[SNAPSHOTS.name][PARTITION]
    return [msgspec.json.decode(record.value, type=Pointer) for record in partition.records]


async def load(world: World) -> Fold[Seats]:
    return await Snapshots(world, SEATS_AGGREGATE, PARTITION).load()


async def test_the_newest_snapshot_is_the_fold_of_the_journal(world: World) -> None:
    records = world.log.topics[SEATS.journal.name][PARTITION].records
    assert await load(world) == replay(SEATS_AGGREGATE, PARTITION, records).fold
    assert [pointer.slot for pointer in pointers(world)] == [0, 1, 0]
    assert len(world.blobs.bodies) == 2  # the oldest was deleted


async def test_a_torn_snapshot_is_replaced_by_the_older_one_and_then_by_a_full_replay(
    world: World,
) -> None:
    newest, older = pointers(world)[2], pointers(world)[1]
    world.blobs.bodies[newest.blob] = world.blobs.bodies[newest.blob][:-7]
    assert (await load(world)).position.offset == older.offset
    del world.blobs.bodies[older.blob]
    assert await load(world) == Fold(Seats())


async def test_pointers_and_snapshots_that_are_garbage_are_passed_over(world: World) -> None:
    newest, older = pointers(world)[2], pointers(world)[1]
    for value in GARBAGE:
        world.log.put(SNAPSHOTS.name, PARTITION, b"seats/0/0", value)
    assert (await load(world)).position.offset == newest.offset
    for value in GARBAGE:
        digest = sha256(value).hexdigest()
        await world.blobs.put(newest.blob, value, sha256=digest)
        pointer = msgspec.structs.replace(newest, sha256=digest)
        world.log.put(SNAPSHOTS.name, PARTITION, b"seats/0/0", msgspec.json.encode(pointer))
        assert (await load(world)).position.offset == older.offset


async def test_a_snapshot_of_another_fold_version_is_not_used(world: World) -> None:
    newer = replace(SEATS_AGGREGATE, fold_version=2)
    assert await Snapshots(world, newer, PARTITION).load() == Fold(Seats())


async def test_a_snapshot_that_the_journal_contradicts_is_not_used(world: World) -> None:
    partition = world.log.topics[SEATS.journal.name][PARTITION]
    del partition.records[-1:]  # lost: the newest snapshot is beyond the end
    assert (await load(world)).position.offset == pointers(world)[1].offset
    forged = partition.records[pointers(world)[1].offset - 1]
    partition.records[forged.offset] = forged._replace(value=forged.value + b" ")
    assert await load(world) == Fold(Seats())


async def test_a_few_entries_get_a_snapshot_when_the_last_one_is_old() -> None:
    world = await World().create()
    aged = replace(QUICK, snapshot_every=1_000, snapshot_least=2, snapshot_every_ms=0)
    async with running(world.host("a", aged)):
        await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        await world.decided(KEY, 1)
        assert pointers(world) == []
        await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        await until(lambda: len(pointers(world)) == 1)
    assert pointers(world)[0].offset == 3


async def test_a_large_state_gets_snapshots_less_often() -> None:
    world = await World().create()
    heavy = replace(OFTEN, snapshot_bytes_of_entry=1)  # the smallest fold has hundreds of bytes
    async with running(world.host("a", heavy)):
        for number in range(6):
            body = ReleaseSeats(seats=1) if number % 2 else HoldSeats(seats=1)
            await world.sender.send(SEATS, KEY, KEY, body)
        await world.decided(KEY, 6)
        await until(lambda: len(pointers(world)) == 1)
    assert pointers(world)[0].offset == 3


async def test_an_owner_goes_on_from_a_snapshot(world: World) -> None:
    async with running(world.host("b")):
        await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=5))
        events = await world.decided(KEY, 7)
    assert len(events) == 7
    assert world.entries(KEY)[-1][0].cause == 6


async def test_a_state_that_does_not_survive_encoding_gets_no_snapshot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await World().create()
    careless = replace(SEATS_AGGREGATE, state_type=dict)
    async with running(AggregateHost(world, careless, owner="a", limits=OFTEN)):
        for _ in range(4):
            await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        await world.decided(KEY, 4)
        await until(lambda: "snapshot.state_not_restorable" in caplog.text)
    assert pointers(world) == []


def test_nested_maps_keep_their_types() -> None:
    wanted = Map[int, Map[str, TenantSeats]]
    state = Map({7: Map({"acme": TenantSeats((5, 5))}), 8: Map()})
    back = msgspec.json.decode(canonical(state), type=wanted, dec_hook=revive)
    assert back == state
    assert isinstance(back[7]["acme"], TenantSeats)


class Part(msgspec.Struct, frozen=True, array_like=True):
    """The first field of `TenantSeats`, as another service may read it."""

    held: tuple[Ms, ...]


async def test_another_service_reads_a_part_of_any_version(world: World) -> None:
    empty: Map[str, Part] = Map()
    reader = SnapshotReader(world, SEATS, Map[str, Part], empty, PARTITION)
    fold, whole = await reader.load(), await load(world)
    assert fold.position == whole.position
    assert fold.state[KEY].held == whole.state[KEY].held


class Other(msgspec.Struct, frozen=True):
    """No part of the state."""

    missing: int


async def test_a_snapshot_without_the_wanted_fields_is_not_used(world: World) -> None:
    reader = SnapshotReader(world, SEATS, Other, Other(0), PARTITION)
    assert await reader.load() == Fold(Other(0))
