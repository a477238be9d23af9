"""Rebuilding a projection from the log; that tables are compared is an integration test."""

from typing import Any

from examples.first_stream import SEATS, HoldSeats, SeatsHeld
from schemas.envelope import Header
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import World
from tunery.cli.replay import rows
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.projector import Projection
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.verbs import Change, Upsert

KEY = "tenant-a"
PARTITION = (SEATS.name, partition_of(KEY.encode()))


def project(header: Header, event: Any) -> tuple[Change, ...]:
    if not isinstance(event, SeatsHeld):
        return ()
    return (Upsert("held", {"id": str(header.offset)}, {"seats": event.seats}),)


HELD = Projection(
    name="held", version=1, streams=(SEATS,), project=project, ddl="", tables=("held",)
)


async def world_of(*seats: int) -> World:
    world = await World().create()
    async with running(world.host()):
        for number in seats:
            await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=number))
        await world.decided(KEY, len(seats))
    return world


async def rebuilt(world: World, target: int) -> tuple[MemoryStore, list[int]]:
    """The rows that come from the entries before an offset."""
    store = MemoryStore()
    await store.ensure(HELD.described())
    at = Position(target)
    await rows._fold(world.log, store, HELD, SEATS, PARTITION[1], at)  # type: ignore[arg-type]  # only rows are written
    return store, [row["seats"] for row in await store.rows("held")]


async def test_only_what_was_projected_live_is_projected_again() -> None:
    """The live rows are of a position: entries behind it must not count as a difference."""
    world = await world_of(1, 2, 1)
    end = len(world.log.topics[SEATS.journal.name][PARTITION[1]].records)
    for target, seats in ((end, [1, 2, 1]), (end - 1, [1, 2])):
        store, held = await rebuilt(world, target)
        assert held == seats
        position = (await store.positions("held"))[PARTITION].position
        assert position.offset == target


async def test_an_empty_partition_has_no_rows() -> None:
    store, held = await rebuilt(await world_of(), 0)
    assert held == []
    assert (await store.positions("held"))[PARTITION].position.offset == 0
