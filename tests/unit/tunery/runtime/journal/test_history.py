"""A history has the records that are in the journal when it is opened."""

from examples.first_stream import SEATS, HoldSeats
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import World
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.history import read_history

KEYS = ("tenant-a", "tenant-b", "tenant-c")


async def test_all_partitions_are_read_to_their_ends() -> None:
    world = await World().create()
    async with running(world.host()):
        for key in KEYS:
            for _ in range(2):
                await world.sender.send(SEATS, key, key, HoldSeats(seats=1))
        for key in KEYS:
            await world.decided(key, 2)
    entries = [entry async for entry in read_history(world.log, SEATS)]
    assert sorted(entry.entry.key for entry in entries) == sorted(KEYS * 2)
    partition = partition_of(KEYS[0].encode())
    some = [entry async for entry in read_history(world.log, SEATS, (partition,))]
    assert {entry.partition for entry in some} == {partition}


async def test_nothing_is_read_of_an_empty_journal() -> None:
    world = await World().create()
    assert [entry async for entry in read_history(world.log, SEATS)] == []
