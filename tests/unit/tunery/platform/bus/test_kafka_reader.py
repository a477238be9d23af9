"""Batches of records are checked before they are read; a broker that is not there is named."""

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tunery.platform.bus.kafka_reader import SharedClient, _check_batches
from tunery.runtime.bus.abstract import Unavailable

NO_BROKER = {"bootstrap_servers": "127.0.0.1:1"}


def batch(*values: bytes) -> bytearray:
    """A batch as a broker sends it, from offset 0."""
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
    return bytearray(builder.build())


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
