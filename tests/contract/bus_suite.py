"""The contract of every log. Subclasses define a fixture `log`; the suite has its own topics."""

import asyncio
from uuid import uuid4

import pytest

from schemas.streams import FOREVER, MESSAGE_BYTES_MAX, PARTITIONS, Topic
from tunery.runtime.bus.abstract import (
    Commit,
    Log,
    OperatedLog,
    OutOfRange,
    Reader,
    Record,
    TooLarge,
)
from tunery.runtime.bus.partitioner import partition_of

WAIT_MS = 60_000


async def fresh_topic(log: Log) -> str:
    name = f"contract.{uuid4().hex[:12]}"
    await log.create((Topic(name, "key", FOREVER, ("tests",), ("tests",)),), PARTITIONS)
    return name


async def take(reader: Reader, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(WAIT_MS / 1_000):
        while len(records) < count:
            records.extend(await reader.poll(500, count - len(records)))
    return records


class BusSuite:
    async def test_creating_a_topic_twice_is_fine_and_it_starts_empty(self, log: Log) -> None:
        topic = await fresh_topic(log)
        await log.create((Topic(topic, "key", FOREVER, ("tests",), ("tests",)),), PARTITIONS)
        assert await log.bounds(topic, 7) == (0, 0)

    async def test_offsets_count_from_zero_without_gaps(self, log: Log) -> None:
        topic = await fresh_topic(log)
        writer = await log.writer(topic, 3)
        first = await writer.append(b"k", b"0")
        pending = [await writer.submit(b"k", str(number).encode()) for number in range(1, 100)]
        offsets = [first.offset, *[(await outcome).offset for outcome in pending]]
        await writer.close()
        assert offsets == list(range(100))
        reader = await log.reader(topic, {3: 0})
        records = await take(reader, 100)
        await reader.close()
        assert [record.value for record in records] == [str(n).encode() for n in range(100)]
        assert [record.offset for record in records] == offsets
        assert {record.partition for record in records} == {3}
        assert records[0].key == b"k"
        assert records[0].timestamp == first.timestamp > 1_600_000_000_000
        assert await log.bounds(topic, 3) == (0, 100)
        assert await log.ends(topic, (3, 5, 7)) == {3: 100, 5: 0, 7: 0}

    async def test_a_key_goes_to_its_partition_unless_one_is_named(self, log: Log) -> None:
        topic = await fresh_topic(log)
        await log.send(topic, b"tenant-a", b"by key")
        other = (partition_of(b"tenant-a") + 1) % PARTITIONS
        sent = await log.send(topic, b"tenant-a", b"by hand", other)
        assert sent.offset == 0
        reader = await log.reader(topic, dict.fromkeys(range(PARTITIONS), 0))
        records = {record.value: record.partition for record in await take(reader, 2)}
        await reader.close()
        assert records == {b"by key": partition_of(b"tenant-a"), b"by hand": other}

    async def test_a_reader_starts_at_its_position_and_waits_for_more(self, log: Log) -> None:
        topic = await fresh_topic(log)
        for number in range(3):
            await log.send(topic, b"k", str(number).encode(), 0)
        reader = await log.reader(topic, {0: 2})
        assert [record.offset for record in await take(reader, 1)] == [2]
        assert list(await reader.poll(20, 10)) == []
        waiting = asyncio.ensure_future(take(reader, 1))
        await asyncio.sleep(0.02)
        await log.send(topic, b"k", b"3", 0)
        assert [record.value for record in await waiting] == [b"3"]
        await reader.close()

    async def test_a_busy_partition_is_read_on_after_a_pause_of_its_reader(self, log: Log) -> None:
        topic = await fresh_topic(log)
        reader = await log.reader(topic, {0: 0, 1: 0})
        await log.send(topic, b"k", b"0", 0)
        await take(reader, 1)
        await log.send(topic, b"k", b"1", 0)
        await asyncio.sleep(0.3)  # the reader is busy with the first
        await take(reader, 1)
        await log.send(topic, b"k", b"2", 0)
        assert [record.value for record in await reader.poll(WAIT_MS, 10)] == [b"2"]
        await reader.close()

    async def test_a_position_beyond_the_end_is_out_of_range(self, log: Log) -> None:
        topic = await fresh_topic(log)
        await log.send(topic, b"k", b"0", 0)
        reader = await log.reader(topic, {0: 5})
        with pytest.raises(OutOfRange) as caught:
            await take(reader, 1)
        await reader.close()
        assert (caught.value.partition, caught.value.start, caught.value.end) == (0, 0, 1)

    async def test_trimming_moves_the_start_and_keeps_offsets(self, log: Log) -> None:
        topic = await fresh_topic(log)
        for number in range(5):
            await log.send(topic, b"k", str(number).encode(), 0)
        await log.trim(topic, 0, 3)
        assert await log.bounds(topic, 0) == (3, 5)
        reader = await log.reader(topic, {0: 3})
        assert [record.offset for record in await take(reader, 2)] == [3, 4]
        await reader.close()
        before = await log.reader(topic, {0: 1})
        with pytest.raises(OutOfRange) as caught:
            await take(before, 1)
        await before.close()
        assert caught.value.start == 3

    async def test_a_record_above_the_limit_is_refused_by_the_writer(self, log: Log) -> None:
        topic = await fresh_topic(log)
        with pytest.raises(TooLarge):
            await log.send(topic, b"k", b"x" * (MESSAGE_BYTES_MAX + 1))
        writer = await log.writer(topic, 0)
        with pytest.raises(TooLarge):
            await writer.append(b"k", b"x" * (MESSAGE_BYTES_MAX + 1))
        assert (await writer.append(b"k", b"x" * MESSAGE_BYTES_MAX)).offset == 0
        await writer.close()

    async def test_records_sent_together_keep_their_order(self, log: Log) -> None:
        topic = await fresh_topic(log)
        records = [(b"k", f"{number:0>1000}".encode()) for number in range(600)]
        records.insert(300, (b"large", b"x" * MESSAGE_BYTES_MAX))
        await asyncio.gather(
            log.send_all(topic, 2, records[:400]), log.send_all(topic, 1, records[:1])
        )
        await log.send_all(topic, 2, records[400:])
        reader = await log.reader(topic, {2: 0})
        kept = await take(reader, len(records))
        await reader.close()
        assert [(record.key, record.value) for record in kept] == records
        assert await log.ends(topic, (1, 2)) == {1: 1, 2: len(records)}
        with pytest.raises(TooLarge):
            await log.send_all(topic, 1, [(b"k", b"x" * (MESSAGE_BYTES_MAX + 1))])

    async def test_commits_come_back_with_their_metadata(self, log: Log) -> None:
        topic, group = await fresh_topic(log), f"contract.{uuid4().hex[:12]}"
        assert dict(await log.committed(group, topic)) == {}
        await log.commit(group, topic, {1: Commit(7, '{"a":1}'), 2: Commit(0, "")})
        await log.commit(group, topic, {1: Commit(9, "later")})
        assert dict(await log.committed(group, topic)) == {1: Commit(9, "later"), 2: Commit(0, "")}

    async def test_members_share_the_partitions_and_inherit_them(self, log: Log) -> None:
        topic, group = await fresh_topic(log), f"contract.{uuid4().hex[:12]}"
        everything = frozenset(range(PARTITIONS))
        async with asyncio.timeout(30), log.membership(group, topic) as first:
            assert await anext(first) == everything
            async with log.membership(group, topic) as second:
                theirs = await anext(second)
                mine = everything
                while mine & theirs or mine | theirs != everything:
                    mine = await anext(first)
            while mine != everything:
                mine = await anext(first)


class OperatedBusSuite(BusSuite):
    """The contract of logs with operator's functions."""

    async def test_a_topic_made_anew_holds_nothing_and_counts_from_zero(
        self, log: OperatedLog
    ) -> None:
        topic = Topic(await fresh_topic(log), "key", FOREVER, ("tests",), ("tests",))
        for number in range(3):
            await log.send(topic.name, b"k", b"v", number)
        await log.recreate(topic, PARTITIONS)
        assert [await log.bounds(topic.name, number) for number in range(3)] == [(0, 0)] * 3
        assert (await log.send(topic.name, b"k", b"v", 1)).offset == 0

    async def test_members_are_counted_while_they_are_there(self, log: OperatedLog) -> None:
        topic, group = await fresh_topic(log), f"contract.{uuid4().hex[:12]}"
        assert await log.members(group) == 0
        async with log.membership(group, topic) as changes:
            assert await anext(aiter(changes))
            assert await log.members(group) == 1
        assert await log.members(group) == 0
