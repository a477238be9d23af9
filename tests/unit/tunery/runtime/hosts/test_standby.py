"""A partition that is folded before it is owned, and folds that must not be used."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from examples.first_stream import SEATS, SEATS_AGGREGATE, HoldSeats, ReleaseSeats
from tests.hosts import running
from tests.log_lines import Lines, logged
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, World, until
from tests.virtual_time import on_virtual_time
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.standby import Standbys
from tunery.runtime.journal.acceptance import Unreadable
from tunery.runtime.journal.snapshots import Snapshots

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())
OTHER = next(key for key in map(str, range(99)) if partition_of(key.encode()) != PARTITION)
#: the fold of a later release, which can use no snapshot of ours
LATER = replace(SEATS_AGGREGATE, fold_version=SEATS_AGGREGATE.fold_version + 1)
COMMANDS = 20


@pytest_asyncio.fixture
async def world() -> World:
    return await World().create()


async def hold_and_release(world: World, count: int = COMMANDS) -> None:
    for number in range(count):
        body = ReleaseSeats(seats=1) if number % 2 else HoldSeats(seats=1)
        await world.sender.send(SEATS, KEY, KEY, body)
    await world.decided(KEY, count)


def folded(lines: Lines) -> list[int]:
    """Records that each owner of the partition read before it decided."""
    served = lines.of("owner.serving")
    return [line["folded"] for line in served if line["partition"] == PARTITION]


@on_virtual_time
async def test_the_owner_of_the_next_release_has_folded_the_journal_before(
    world: World,
) -> None:
    later: AggregateHost[Any] = AggregateHost(world, LATER, owner="b", limits=QUICK)
    async with AsyncExitStack() as first:
        await first.enter_async_context(running(world.host("a")))
        await hold_and_release(world)
        with logged() as lines:
            async with running(later):
                await later.ready()
                await first.aclose()  # what it still had goes to the other
                await hold_and_release(world, COMMANDS + 2)
    assert folded(lines)
    assert max(folded(lines)) <= 3, "claims, and entries that were on their way"


@on_virtual_time
async def test_without_a_standby_the_journal_is_folded_by_its_owner(
    world: World,
) -> None:
    async with running(world.host("a")):
        await hold_and_release(world)
    alone: AggregateHost[Any] = AggregateHost(world, LATER, limits=replace(QUICK, standby=False))
    with logged() as lines:
        async with running(alone):
            await alone.ready()
    assert folded(lines) == [COMMANDS + 2]  # with both claims


@on_virtual_time
async def test_a_fold_of_records_that_the_journal_lost_is_not_used(world: World) -> None:
    async with running(world.host("a")):
        await hold_and_release(world)
    standbys = Standbys(world, SEATS_AGGREGATE, QUICK)
    standbys.follow((PARTITION,))
    await standbys.caught_up()
    warm = standbys.take(PARTITION)
    assert warm is not None
    snapshots = Snapshots(world, SEATS_AGGREGATE, PARTITION)
    assert await snapshots.load(warm.fold) is warm.fold
    del world.log.topics[SEATS.journal.name][PARTITION].records[-1]
    assert (await snapshots.load(warm.fold)).last_offset == -1


@on_virtual_time
async def test_a_journal_that_cannot_be_read_keeps_no_other_waiting(world: World) -> None:
    world.log.put(SEATS.journal.name, PARTITION, b"", b"not a record")
    host = world.host()
    async with running(host):
        await until(lambda: PARTITION in host.stopped)
        await world.sender.send(SEATS, OTHER, OTHER, HoldSeats(seats=1))
        await world.decided(OTHER, 1)
    assert isinstance(host.stopped[PARTITION], Unreadable)


@on_virtual_time
async def test_a_partition_that_is_away_keeps_no_other_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = world.log.bounds

    async def away(topic: str, partition: int) -> tuple[int, int]:
        if partition == PARTITION:
            raise Unavailable("its leader is away")
        return await bounds(topic, partition)

    monkeypatch.setattr(world.log, "bounds", away)
    standbys = Standbys(world, SEATS_AGGREGATE, QUICK)
    standbys.follow((PARTITION, partition_of(OTHER.encode())))
    await standbys.caught_up()
    assert standbys.take(partition_of(OTHER.encode())) is not None
    monkeypatch.undo()
    await asyncio.sleep(1)
    assert standbys.take(PARTITION) is not None, "it is tried again"
    await standbys.stop()
