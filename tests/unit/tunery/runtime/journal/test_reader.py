from dataclasses import replace

import pytest
import pytest_asyncio

from examples.first_stream import SEATS, HoldSeats, SeatsHeld
from schemas.streams import PARTITIONS
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import World
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.acceptance import Divergence, Unreadable
from tunery.runtime.journal.codec import codec_of
from tunery.runtime.journal.reader import (
    START,
    Accepted,
    JournalReader,
    Position,
    load_position,
    read_record,
)

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())
OTHER = next(key for key in map(str, range(99)) if partition_of(key.encode()) != PARTITION)
CODEC = codec_of(SEATS)


@pytest_asyncio.fixture
async def world() -> World:
    """A claim and two entries in each of two partitions."""
    world = await World().create()
    async with running(world.host()):
        for key in (KEY, OTHER):
            for _ in range(2):
                await world.sender.send(SEATS, key, key, HoldSeats(seats=1))
            await world.decided(key, 2)
    return world


def records(world: World, key: str = KEY) -> list[Record]:
    return world.log.topics[SEATS.journal.name][partition_of(key.encode())].records


def reader(world: World) -> JournalReader:
    return JournalReader(world.log, SEATS, dict.fromkeys(range(PARTITIONS), START))


async def read_all(reader: JournalReader, count: int) -> list[Accepted]:
    accepted: list[Accepted] = []
    while len(accepted) < count:
        for batch in (await reader.read(100)).values():
            accepted.extend(batch.accepted)
    return accepted


async def test_a_claim_is_void_and_an_entry_is_accepted_with_its_events(world: World) -> None:
    claim, first, _ = records(world)
    judged = read_record(SEATS, CODEC, START, claim)
    assert (judged.accepted, judged.reason) == (None, "claim")
    assert judged.claim is not None
    judged = read_record(SEATS, CODEC, judged.position, first)
    assert judged.accepted is not None
    assert isinstance(judged.accepted.events[0], SeatsHeld)
    assert (judged.accepted.header.offset, judged.accepted.header.tenant) == (1, KEY)


async def test_a_gap_is_divergence_and_an_unknown_event_is_unreadable(world: World) -> None:
    claim, first, _ = records(world)
    position = read_record(SEATS, CODEC, START, claim).position
    with pytest.raises(Divergence, match="expected offset 0; records are missing"):
        read_record(SEATS, CODEC, START, first)
    later = first._replace(value=first.value.replace(b"SeatsHeld.v1", b"SeatsHeld.v9"))
    with pytest.raises(Unreadable, match=r"SeatsHeld\.v9"):
        read_record(SEATS, CODEC, position, later)


async def test_all_partitions_are_read_to_where_they_ended_at_the_opening(world: World) -> None:
    journal = reader(world)
    await journal.open()
    assert not journal.caught_up(PARTITION)
    accepted = await read_all(journal, 4)
    assert {entry.header.key for entry in accepted} == {KEY, OTHER}
    assert all(journal.caught_up(partition) for partition in range(PARTITIONS))
    assert journal.claims[PARTITION][0] == 0
    await journal.close()


async def test_a_partition_that_stops_is_raised_once_and_the_others_are_read_on(
    world: World,
) -> None:
    broken = records(world)
    broken[2] = broken[2]._replace(value=b"not a record")
    journal = reader(world)
    await journal.open()
    accepted: list[Accepted] = []
    stops: list[Unreadable] = []
    while len(accepted) < 3 or not stops:
        try:
            for batch in (await journal.read(100)).values():
                accepted.extend(batch.accepted)
        except Unreadable as stopped:
            stops.append(stopped)
    assert [(stop.partition, stop.offset) for stop in stops] == [(PARTITION, 2)]
    assert list(journal.stopped) == [PARTITION]
    assert [entry.header.key for entry in accepted].count(KEY) == 1
    await journal.close()


async def test_a_position_beyond_the_end_is_divergence(world: World) -> None:
    far = replace(world, name="far")
    journal = JournalReader(far.log, SEATS, {PARTITION: Position(99)})
    await journal.open()
    with pytest.raises(Divergence, match="its start or its end is lost"):
        await journal.read(10)


async def test_a_position_survives_as_text(world: World) -> None:
    journal = reader(world)
    await journal.open()
    await read_all(journal, 4)
    position = journal.positions[PARTITION]
    assert load_position(position.dump()) == position
    await journal.close()
