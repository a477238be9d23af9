import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

import pytest
import pytest_asyncio

from examples.first_stream import SEATS
from schemas.streams import PARTITIONS
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, World, until
from tests.unit.tunery.runtime.strays import cancel_by_mistake, tasks_called
from tests.virtual_time import on_virtual_time
from tunery.runtime import tasks
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.hosts.keeping import HostUnstoppable
from tunery.runtime.hosts.membership import AssignedPartitions, PartitionWork
from tunery.runtime.journal.acceptance import Poison
from tunery.runtime.tasks import stop_tasks

EVERY = frozenset(range(PARTITIONS))


class Member:
    """A process of the group. `running` are the partitions it works on now."""

    name = "member"

    def __init__(self, world: World) -> None:
        self.running: set[int] = set()
        self.begun: list[int] = []
        self.dropped: list[int] = []
        self.broken: set[int] = set()  # partitions that stop at once
        self.failures: list[Exception] = []  # of the works that begin from now on
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
        if self.failures:
            raise self.failures.pop()
        self.running.add(partition)
        try:
            await asyncio.sleep(60)
        finally:
            self.running.discard(partition)


@pytest_asyncio.fixture
async def world() -> World:
    return await World().create()


@on_virtual_time
async def test_the_only_member_works_on_every_partition(world: World) -> None:
    member = Member(world)
    async with running(member):
        await until(lambda: member.running == EVERY)
    assert member.begun == sorted(EVERY)
    assert member.running == set()


@on_virtual_time
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


@on_virtual_time
async def test_a_partition_that_stops_is_noted_and_the_others_go_on(world: World) -> None:
    member = Member(world)
    member.broken = {2}
    async with running(member):
        await until(lambda: 2 in member.partitions.stopped and member.running == EVERY - {2})
        assert isinstance(member.partitions.stopped[2], Poison)


@on_virtual_time
async def test_an_outage_of_the_log_is_waited_out(world: World) -> None:
    member = Member(world)
    member.outages = 2
    async with running(member):
        await until(lambda: member.running == EVERY)
    assert member.outages == 0


@pytest.mark.parametrize("partition", sorted(EVERY))
@on_virtual_time
async def test_partition_whose_task_was_cancelled_by_mistake_is_served_again(
    world: World, partition: int
) -> None:
    member = Member(world)
    async with running(member):
        await until(lambda: member.running == EVERY)
        cancel_by_mistake(f"member {partition}")
        await until(lambda: member.begun.count(partition) == 2)
        await until(lambda: member.running == EVERY)
    assert len(member.begun) == len(EVERY) + 1
    assert member.dropped == sorted(EVERY)


@on_virtual_time
async def test_group_is_joined_again_when_following_it_was_cancelled_by_mistake(
    world: World,
) -> None:
    first, second = Member(world), Member(world)
    async with running(first):
        await until(lambda: first.running == EVERY)
        cancel_by_mistake("member assignments")
        await until(lambda: not tasks_called("member assignments"))
        await until(lambda: bool(tasks_called("member assignments")))
        async with running(second):
            await until(lambda: first.running | second.running == EVERY and bool(second.running))
        await until(lambda: first.running == EVERY)
    assert first.begun[: len(EVERY)] == sorted(EVERY), "those that stayed were not disturbed"


@on_virtual_time
async def test_work_that_fails_ends_the_run_of_the_host(world: World) -> None:
    member = Member(world)
    member.failures = [LookupError("a defect")]
    with pytest.raises(LookupError):
        async with asyncio.timeout(180):
            await member.run()
    assert member.running == set()


@on_virtual_time
async def test_work_that_does_not_end_is_named_and_ends_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until now the host waited without a limit for partitions that were taken away."""
    monkeypatch.setattr(tasks, "CANCEL_MS_MAX", 20)
    monkeypatch.setattr(stop_tasks, "__defaults__", (20,))
    let_go = asyncio.Event()

    class Deaf(Member):
        async def _work(self, partition: int) -> None:
            while partition == 1 and not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            if partition == 2:
                await asyncio.sleep(0.05)
                raise LookupError("a defect")
            await super()._work(partition)

    with pytest.raises(HostUnstoppable, match="member 1"):
        async with asyncio.timeout(180):
            await Deaf(world).run()
    let_go.set()
    await asyncio.sleep(0.01)
