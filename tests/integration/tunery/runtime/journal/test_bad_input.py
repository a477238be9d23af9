"""Malformed records in a topic of commands, written by a foreign Kafka client."""

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError

from examples.first_stream import (
    SEATS,
    SEATS_AGGREGATE,
    HoldSeats,
    ReleaseSeats,
    SeatsHeld,
    SeatsReleased,
)
from schemas import errors
from schemas.envelope import Entry, Rejected
from schemas.streams import PARTITIONS, Stream
from schemas.topics import SNAPSHOTS
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import envelope
from tunery.local.stack import Stack
from tunery.platform.bus.kafka import KafkaLog
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.abstract import Log, TooLarge
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.codec import codec_of, decode_record
from tunery.runtime.levels import LogLevels
from tunery.runtime.tools.verify import read_all

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())
BYTES_MAX = 1_040_000  # bytes that the broker accepts and our own producers refuse
SKEW_MS_MAX = 60_000
WAIT_S = 180


@dataclass
class Ports:
    log: Log
    name: str = "strangers"
    keys: SenderKeys = UNSIGNED
    levels: LogLevels = field(default_factory=LogLevels)
    clock: Clock = field(default_factory=SystemClock)
    blobs: Blobs = field(default_factory=MemoryBlobs)


def hold_seats(seats: int = 1) -> bytes:
    return envelope(KEY, HoldSeats(seats=seats), str(uuid4()))


BAD: Final = (
    None,  # a tombstone
    b"",
    b"\x00\xff no command",
    b"[" * BYTES_MAX,
    envelope("tenant-b", HoldSeats(seats=1), str(uuid4())),
    hold_seats().replace(b"HoldSeats.v1", b"HoldSeats.v2"),
    hold_seats().replace(b'"tenant":"tenant-a"', b'"tenant":"tenant-b"'),
)


async def await_entries(log: Log, stream: Stream, count: int) -> list[tuple[Entry, Any]]:
    """Wait until the partition has `count` entries; returns each with its single event."""
    async with asyncio.timeout(WAIT_S):
        while True:
            records = await read_all(log, stream.journal.name, PARTITION)
            records_read = [decode_record(record.value) for record in records]
            entries = [entry for entry in records_read if isinstance(entry, Entry)]
            if len(entries) >= count:
                return [(entry, codec_of(stream).events(entry)[0]) for entry in entries]
            await asyncio.sleep(0.05)


async def test_malformed_records_are_rejected_and_the_partition_goes_on(servers: Stack) -> None:
    stream = replace(SEATS, name="seats.strangers")
    log = KafkaLog(servers.kafka_as())
    await log.create([stream.commands, stream.journal, SNAPSHOTS], PARTITIONS)
    sender = Sender(log, {stream.name: stream})
    host = AggregateHost(Ports(log), replace(SEATS_AGGREGATE, stream=stream))
    foreign_producer = AIOKafkaProducer(
        **servers.kafka_as().client_options, max_request_size=20_000_000
    )
    await foreign_producer.start()

    async def put(value: bytes | None, **options: Any) -> None:
        await foreign_producer.send_and_wait(
            stream.commands.name, value, partition=PARTITION, **({"key": b"x"} | options)
        )

    began_ms = time.time_ns() // 1_000_000
    try:
        async with running(host):
            for value in BAD:
                await put(value)
            with pytest.raises(MessageSizeTooLargeError):
                await put(b"x" * 10_000_000)
            with pytest.raises(TooLarge):
                await sender.send(
                    stream, KEY, KEY, HoldSeats(seats=1), correlation="x" * 10_000_000
                )
            # timestamps in the record and in its headers are a client's: they are ignored
            await put(hold_seats(2), key=None, timestamp_ms=1)
            await put(
                hold_seats(2), timestamp_ms=began_ms * 2, headers=[("date", b"1 January 1970")]
            )
            await sender.send(stream, KEY, KEY, ReleaseSeats(seats=4))
            entries = await await_entries(log, stream, len(BAD) + 3)
        assert not host.stopped
    finally:
        await foreign_producer.stop()
        await log.close()
    events = [event for _, event in entries]
    rejected = [event.code for event in events[: len(BAD)] if isinstance(event, Rejected)]
    assert rejected == [errors.MALFORMED] * len(BAD)
    assert [type(event) for event in events[len(BAD) :]] == [SeatsHeld, SeatsHeld, SeatsReleased]
    moments = [entry.at for entry, _ in entries]
    assert moments == sorted(moments)
    assert abs(moments[0] - began_ms) < SKEW_MS_MAX
    assert moments[-1] - moments[0] < SKEW_MS_MAX
