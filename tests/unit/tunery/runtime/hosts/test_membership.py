import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

import pytest_asyncio

from examples.first_stream import SEATS
from schemas.topics import PARTITIONS
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, World, running, until
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.hosts.membership import AssignedPartitions, PartitionWork
from tunery.runtime.journal.acceptance import Poison

EVERY = frozenset(range(PARTITIONS))


class Member:
    """A process of the group. `running` are the partitions it works on now."""

    name = "member"

    def __init__(self, world: World) -> None:
        self.running: set[int] = set()
        self.begun: list[int] = []
        self.dropped: list[int] = []
        self.broken: set[int] = set()  # partitions that stop at once
        self.outages = 0  # how often preparing fails from now on
        self.partitions = AssignedPartitions(
            world,
            host=self.name,
            stream=SEATS.name,
            group="group",
            topic=SEATS.journal.name,
            limits=QUICK,
            prepare=self._prepare,
            drop=self.dropped.append,
        )

    async def run(self) -> None:
        await self.partitions.run()

    async def ready(self) -> None:
        await until(lambda: self.partitions.assigned)

    async def _prepare(self, partitions: Sequence[int]) -> Mapping[int, PartitionWork]:
        if self.outages:
            self.outages -= 1
            raise Unavailable("the log is away")
        return {partition: partial(self._work, partition) for partition in partitions}

    async def _work(self, partition: int) -> None:
        self.begun.append(partition)
        if partition in self.broken:
            raise Poison(SEATS.name, partition, 7, "it cannot be decided")
        self.running.add(partition)
        try:
            await asyncio.sleep(60)
        finally:
            self.running.discard(partition)


@pytest_asyncio.fixture
async def world() -> World:
    return await World().create()


async def test_the_only_member_works_on_every_partition(world: World) -> None:
    member = Member(world)
    async with running(member):
        await until(lambda: member.running == EVERY)
    assert member.begun == sorted(EVERY)
    assert member.running == set()


async def test_partitions_move_to_a_second_member_and_back_and_others_are_not_disturbed(
    world: World,
) -> None:
    first, second = Member(world), Member(world)
    async with running(first):
        await until(lambda: first.running == EVERY)
        async with running(second):
            await until(lambda: bool(second.running) and first.running | second.running == EVERY)
            await until(lambda: not first.running & second.running)
            moved, kept = set(second.running), set(first.running)
            assert set(first.dropped) == moved
        await until(lambda: first.running == EVERY)
    assert sorted(first.begun) == sorted([*EVERY, *moved])
    assert all(first.begun.count(partition) == 1 for partition in kept)


async def test_a_partition_that_stops_is_noted_and_the_others_go_on(world: World) -> None:
    member = Member(world)
    member.broken = {2}
    async with running(member):
        await until(lambda: member.running == EVERY - {2})
        assert isinstance(member.partitions.stopped[2], Poison)


async def test_an_outage_of_the_log_is_waited_out(world: World) -> None:
    member = Member(world)
    member.outages = 2
    async with running(member):
        await until(lambda: member.running == EVERY)
    assert member.outages == 0
