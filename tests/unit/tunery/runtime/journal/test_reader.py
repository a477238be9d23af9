"""Readers of journals: accepted entries in order, and partitions that stop by name."""

import pytest

from examples.first_stream import SEATS, HoldSeats, SeatsHeld
from schemas.envelope import Claim
from tests.unit.tunery.runtime.journal.memory_fixture import World, running
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.acceptance import Divergence, Unreadable
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.reader import START, JournalReader, Position, load_position

KEY, OTHER = "tenant-a", "tenant-b"
PARTITION, OTHER_PARTITION = partition_of(KEY.encode()), partition_of(OTHER.encode())
WAIT_MS = 20


@pytest.fixture
async def world() -> World:
    """Two decided commands of one tenant, one of another."""
    world = await World().create()
    async with running(world.host()):
        for key in (KEY, KEY, OTHER):
            await world.sender.send(SEATS, key, key, HoldSeats(seats=1))
        await world.decided(KEY, 2)
        await world.decided(OTHER, 1)
    return world


async def opened(world: World, **positions: Position) -> JournalReader:
    """An open reader of both partitions; a position by name instead of the start."""
    starts = {
        PARTITION: positions.get("first", START),
        OTHER_PARTITION: positions.get("second", START),
    }
    reader = JournalReader(world.log, SEATS, starts)
    await reader.open()
    return reader


async def test_accepted_entries_come_in_order_with_headers_and_positions(world: World) -> None:
    assert PARTITION != OTHER_PARTITION
    batches = await (await opened(world)).read(WAIT_MS)
    first, second = batches[PARTITION].accepted
    assert [type(event) for event in first.events] == [SeatsHeld]
    assert (first.header.seq, second.header.seq) == (1, 2)
    assert (first.header.key, first.header.offset) == (KEY, 1)
    assert second.position == batches[PARTITION].position
    assert len(batches[OTHER_PARTITION].accepted) == 1


async def test_a_reader_goes_on_at_a_position_that_was_kept_as_text(world: World) -> None:
    batches = await (await opened(world)).read(WAIT_MS)
    first, second = batches[PARTITION].accepted
    kept = load_position(first.position.dump())
    again = await (await opened(world, first=kept)).read(WAIT_MS)
    assert again[PARTITION].accepted == (second,)


async def test_a_reader_has_caught_up_at_the_end_that_the_log_had_when_it_opened(
    world: World,
) -> None:
    reader = await opened(world)
    assert not reader.caught_up(PARTITION)
    await reader.read(WAIT_MS)
    assert reader.caught_up(PARTITION)
    assert await reader.read(WAIT_MS) == {}


async def test_the_newest_claim_is_known_and_older_epochs_are_passed_over(world: World) -> None:
    stale = world.log.topics[SEATS.journal.name][PARTITION].records[-1].value
    claim = Claim(owner="b", nonce="n")
    offset = world.log.put(SEATS.journal.name, PARTITION, b"", encode(claim)).offset
    world.log.put(SEATS.journal.name, PARTITION, KEY.encode(), stale)
    reader = await opened(world)
    batches = await reader.read(WAIT_MS)
    assert reader.claims[PARTITION] == (offset, claim)
    assert len(batches[PARTITION].accepted) == 2
    assert batches[PARTITION].position.offset == offset + 2


async def test_an_unreadable_record_stops_its_partition_after_what_was_good(world: World) -> None:
    world.log.put(SEATS.journal.name, PARTITION, b"", b"not json")
    reader = await opened(world)
    batches = await reader.read(WAIT_MS)
    assert len(batches[PARTITION].accepted) == 2
    with pytest.raises(Unreadable, match=rf"seats/{PARTITION} at offset 3"):
        await reader.read(WAIT_MS)
    assert await reader.read(WAIT_MS) == {}
    assert list(reader.stopped) == [PARTITION]


async def test_a_position_beyond_the_log_stops_its_partition_and_others_go_on(
    world: World,
) -> None:
    reader = await opened(world, first=Position(offset=99))
    with pytest.raises(Divergence, match="its start or its end is lost"):
        await reader.read(WAIT_MS)
    batches = await reader.read(WAIT_MS)
    assert list(batches) == [OTHER_PARTITION]


async def test_a_reader_has_to_be_opened_first(world: World) -> None:
    with pytest.raises(RuntimeError, match="open the reader first"):
        await JournalReader(world.log, SEATS, {PARTITION: START}).read(WAIT_MS)
