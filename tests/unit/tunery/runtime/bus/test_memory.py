"""Behaviour of the in-memory log that the common contract suite does not cover."""

import asyncio

import pytest

from schemas.streams import MESSAGE_BYTES_MAX
from schemas.topics import HEARTBEATS
from tunery.runtime.bus.abstract import Commit, OutOfRange, TooLarge, Unavailable
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of

TOPIC = HEARTBEATS


async def log(partitions: int = 2) -> MemoryLog:
    created = MemoryLog()
    await created.create([TOPIC], partitions)
    return created


async def test_a_topic_that_was_never_created_is_named() -> None:
    empty = MemoryLog()
    for use in (
        empty.bounds(TOPIC.name, 0),
        empty.writer(TOPIC.name, 0),
        empty.reader(TOPIC.name, {0: 0}),
        empty.send(TOPIC.name, b"k", b"v", partition=0),
        empty.trim(TOPIC.name, 0, 1),
    ):
        with pytest.raises(Unavailable, match=TOPIC.name):
            await use


async def test_a_topic_is_created_once_and_keeps_its_records() -> None:
    there = await log()
    await there.send(TOPIC.name, b"k", b"v", partition=1)
    await there.create([TOPIC], 8)
    assert await there.bounds(TOPIC.name, 1) == (0, 1)
    assert len(there.topics[TOPIC.name]) == 2
    await there.recreate(TOPIC, 3)
    assert await there.bounds(TOPIC.name, 1) == (0, 0)
    assert len(there.topics[TOPIC.name]) == 3


async def test_records_of_a_key_go_to_its_partition() -> None:
    there = await log(64)
    appended = await there.send(TOPIC.name, b"node-7", b"v")
    assert appended.offset == 0
    assert await there.bounds(TOPIC.name, partition_of(b"node-7")) == (0, 1)


async def test_a_record_that_is_too_large_is_refused_and_nothing_is_appended() -> None:
    there = await log()
    with pytest.raises(TooLarge):
        await there.send(TOPIC.name, b"k", b"x" * (MESSAGE_BYTES_MAX + 1), partition=0)
    assert await there.bounds(TOPIC.name, 0) == (0, 0)


async def test_offsets_stay_when_the_log_is_trimmed() -> None:
    there = await log()
    for number in range(5):
        await there.send(TOPIC.name, b"k", b"%d" % number, partition=0)
    reader = await there.reader(TOPIC.name, {0: 3})
    await there.trim(TOPIC.name, 0, 3)
    assert await there.bounds(TOPIC.name, 0) == (3, 5)
    assert [(each.offset, each.value) for each in await reader.poll(0, 10)] == [
        (3, b"3"),
        (4, b"4"),
    ]
    await there.trim(TOPIC.name, 0, 1)  # trimming never goes back
    await there.trim(TOPIC.name, 0, 99)  # nor beyond the end
    assert await there.bounds(TOPIC.name, 0) == (5, 5)
    late = await there.reader(TOPIC.name, {0: 2})
    with pytest.raises(OutOfRange):
        await late.poll(0, 10)


async def test_a_reader_takes_no_more_than_it_may_and_goes_on_from_there() -> None:
    there = await log()
    for partition in (0, 1):
        for number in range(3):
            await there.send(TOPIC.name, b"k", b"%d" % number, partition=partition)
    reader = await there.reader(TOPIC.name, {0: 0, 1: 1})
    read = [await reader.poll(0, 2) for _ in range(4)]
    positions = [[(each.partition, each.offset) for each in batch] for batch in read]
    assert positions == [[(0, 0), (0, 1)], [(0, 2), (1, 1)], [(1, 2)], []]


async def test_a_waiting_reader_wakes_for_its_own_partitions_only() -> None:
    there = await log()
    reader = await there.reader(TOPIC.name, {0: 0})
    waiting = asyncio.create_task(reader.poll(10_000, 10))
    await asyncio.sleep(0)
    await there.send(TOPIC.name, b"k", b"other", partition=1)
    await asyncio.sleep(0)
    assert not waiting.done()
    await there.send(TOPIC.name, b"k", b"mine", partition=0)
    assert [each.value for each in await asyncio.wait_for(waiting, 60)] == [b"mine"]
    assert await reader.poll(1, 10) == ()
    await reader.close()
    await reader.close()  # closing twice is allowed
    assert not there.watchers[TOPIC.name]


async def test_members_of_a_group_share_its_partitions_and_inherit_them() -> None:
    there = await log(5)
    assert await there.members("g") == 0
    async with there.membership("g", TOPIC.name) as first:
        assert await anext(first) == {0, 1, 2, 3, 4}
        async with there.membership("g", TOPIC.name) as second:
            assert await there.members("g") == 2
            shares = [await anext(first), await anext(second)]
            assert shares == [{0, 2, 4}, {1, 3}]
        assert await anext(first) == {0, 1, 2, 3, 4}
    assert await there.members("g") == 0


async def test_commits_belong_to_a_group_and_a_topic() -> None:
    there = await log()
    commit = Commit(7, "seven")
    await there.commit("g", TOPIC.name, {0: commit})
    await there.commit("g", TOPIC.name, {1: Commit(1, "")})
    assert (await there.committed("g", TOPIC.name))[0] == commit
    assert len(await there.committed("g", TOPIC.name)) == 2
    assert await there.committed("h", TOPIC.name) == {}
