from uuid import UUID

import pytest

from examples.first_stream import SEATS, HoldSeats
from schemas.envelope import Idempotency
from schemas.streams import MESSAGE_BYTES_MAX, PARTITIONS
from simulator.event_core.streams import STREAMS
from tunery.runtime.bus.abstract import TooLarge
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.journal.codec import codec_of, decode_envelope
from tunery.runtime.telemetry.trail import Trail, trail_context


async def test_a_command_lands_in_its_keys_partition_with_everything_it_carries() -> None:
    log = MemoryLog()
    await log.create((SEATS.commands,), PARTITIONS)
    mark = Idempotency(key="k", body="b")
    sent = await Sender(log, STREAMS).send(
        "seats", "ada", "ada", HoldSeats(seats=2), idempotency=mark, correlation="c", causation="p"
    )
    (record,) = log.topics[SEATS.commands.name][partition_of(b"ada")].records
    envelope = decode_envelope(record.value)
    assert UUID(envelope.id).version == 4
    assert (envelope.id, envelope.key, envelope.tenant) == (sent, "ada", "ada")
    assert (envelope.idempotency, envelope.correlation, envelope.causation) == (mark, "c", "p")
    assert codec_of(SEATS).command(envelope) == HoldSeats(seats=2)


async def test_an_id_and_a_partition_may_be_given() -> None:
    log = MemoryLog()
    await log.create((SEATS.commands,), PARTITIONS)
    chosen = "6f1f0c6e-5a0e-4b6e-9a3c-7d6d2f0f7a11"
    sender = Sender(log, STREAMS)
    assert await sender.send(SEATS, "*", "*", HoldSeats(seats=1), command_id=chosen, partition=6)
    (record,) = log.topics[SEATS.commands.name][6].records
    assert decode_envelope(record.value).id == chosen


async def test_what_is_too_large_is_refused_before_it_is_sent() -> None:
    log = MemoryLog()
    await log.create((SEATS.commands,), PARTITIONS)
    with pytest.raises(TooLarge):
        await Sender(log, STREAMS).send(
            SEATS, "ada", "ada", HoldSeats(seats=1), correlation="x" * MESSAGE_BYTES_MAX
        )
    assert await log.bounds(SEATS.commands.name, partition_of(b"ada")) == (0, 0)


async def test_a_command_carries_on_the_request_of_the_task_that_sends_it() -> None:
    log = MemoryLog()
    await log.create((SEATS.commands,), PARTITIONS)
    sender = Sender(log, STREAMS)
    with trail_context(Trail("req_1", "00-trace")):
        await sender.send(SEATS, "ada", "ada", HoldSeats(seats=1))
        await sender.send(SEATS, "ada", "ada", HoldSeats(seats=1), correlation="other")
    await sender.send(SEATS, "ada", "ada", HoldSeats(seats=1))
    records = log.topics[SEATS.commands.name][partition_of(b"ada")].records
    carried = [decode_envelope(record.value) for record in records]
    assert [envelope.correlation for envelope in carried] == ["req_1", "other", None]
    assert [envelope.traceparent for envelope in carried] == ["00-trace", "00-trace", None]
