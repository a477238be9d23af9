import pytest

from examples.first_stream import SEATS, SEATS_AGGREGATE, HoldSeats
from schemas.streams import PARTITIONS
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import World
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.acceptance import Divergence
from tunery.runtime.tools.verify import read_all, replay, replay_stream

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())


async def written(count: int) -> World:
    world = await World().create()
    async with running(world.host("a")):
        for _ in range(count):
            await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        await world.decided(KEY, count)
    return world


async def test_a_replay_counts_entries_and_claims_and_folds_the_state() -> None:
    world = await written(3)
    replays = await replay_stream(world.log, SEATS_AGGREGATE)
    assert len(replays) == PARTITIONS
    assert [replayed.accepted for replayed in replays if replayed.accepted] == [3]
    assert (replays[PARTITION].void, len(replays[PARTITION].fold.state[KEY].held)) == (1, 3)


async def test_all_records_of_a_partition_are_read() -> None:
    world = await written(2)
    records = await read_all(world.log, SEATS.journal.name, PARTITION)
    assert [record.offset for record in records] == [0, 1, 2]


async def test_a_changed_record_ends_the_replay() -> None:
    world = await written(3)
    records = await read_all(world.log, SEATS.journal.name, PARTITION)
    changed = records[1]._replace(value=records[1].value.replace(b'"seats":1', b'"seats":2'))
    with pytest.raises(Divergence, match="hash chain"):
        replay(SEATS_AGGREGATE, PARTITION, [records[0], changed, *records[2:]])
