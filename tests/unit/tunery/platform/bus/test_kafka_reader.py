"""Batches of records are checked before they are read; a broker that is not there is named."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tunery.platform.bus.kafka_reader import KafkaReader, SharedClient, _check_batches
from tunery.runtime.bus.abstract import Record, Unavailable

NO_BROKER = {"bootstrap_servers": "127.0.0.1:1"}


def batch(*values: bytes) -> bytearray:
    """A batch as a broker sends it, from offset 0."""
    return batch_from(0, *values)


def batch_from(first: int, *values: bytes) -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=10_000,
    )
    for offset, value in enumerate(values):
        builder.append(offset, timestamp=1_000, key=None, value=value, headers=[])
    built = bytearray(builder.build())
    built[:8] = first.to_bytes(8, "big")  # the base offset is not part of the checksum
    return built


def test_records_before_the_position_are_left_out() -> None:
    fetched = _check_batches(3, 1, bytes(batch(b"a", b"b", b"c")))
    assert [(record.offset, record.key, record.value) for record in fetched.records] == [
        (1, b"", b"b"),
        (2, b"", b"c"),
    ]


def test_a_batch_with_a_flipped_bit_or_without_its_end_is_refused() -> None:
    damaged = batch(b"a", b"b")
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordException, match="checksum of a batch in partition 3"):
        _check_batches(3, 0, bytes(damaged))
    with pytest.raises(CorruptRecordException, match="in partition 3 came in part"):
        _check_batches(3, 0, bytes(batch(b"a"))[:-1])


async def test_a_broker_that_is_not_there_is_named() -> None:
    client = SharedClient(NO_BROKER["bootstrap_servers"], {})
    with pytest.raises(Unavailable, match=f"Kafka at {NO_BROKER['bootstrap_servers']}: "):
        await client.connected()
    await client.close()


class Partition:
    """One partition of a broker: each request waits for a record, and takes all that are there."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.came, self.requests = asyncio.Event(), 0
        self.cluster = self  # of a client

    def put(self, value: bytes) -> None:
        self.values.append(value)
        self.came.set()

    async def send(self, request: Any) -> Any:
        self.requests += 1
        ((_, ((partition, first, _),)),) = request.topics
        while len(self.values) <= first:
            self.came.clear()
            await self.came.wait()
        self.topics = [("t", [(partition, 0, 0, bytes(batch_from(first, *self.values[first:])))])]
        return self

    async def connect(self, _node: int) -> "Partition":
        return self

    def leader_for_partition(self, _partition: Any) -> int:
        return 1

    def connected(self) -> bool:
        return True

    def close(self) -> None: ...


async def bounds(_topic: str, _partition: int) -> tuple[int, int]:
    return 0, 0


@pytest.mark.parametrize(("gather_ms", "requests"), [(0, 5), (500, 2)])
async def test_records_that_come_one_by_one_are_gathered(gather_ms: int, requests: int) -> None:
    partition: Any = Partition()
    reader = KafkaReader(partition, partition, bounds, "t", {0: 0}, gather_ms)
    read: list[Record] = []
    for value in (b"a", b"b", b"c", b"d"):
        partition.put(value)
        for _ in range(8):  # turns of the loop, in which a request that waits is answered
            read += await reader.poll(0, 10)
    while len(read) < len(partition.values):
        read += await reader.poll(60_000, 10)
    await asyncio.sleep(0)
    await reader.close()
    assert [record.value for record in read] == [b"a", b"b", b"c", b"d"]
    assert partition.requests == requests  # the fifth waits for a record
