"""Malformed records in a topic of commands never stop the partition."""

import json
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.first_stream import SEATS, SEATS_AGGREGATE, HoldSeats, Seats, SeatsHeld
from schemas import errors
from schemas.envelope import Envelope, Rejected, Repeated
from schemas.streams import MESSAGE_BYTES_MAX
from simulator.event_core.streams import CountSeats
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import World, envelope
from tunery.runtime.bus.abstract import Record, TooLarge
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.acceptance import Poison
from tunery.runtime.journal.codec import codec_of
from tunery.runtime.journal.decision import decide_record, read_command
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.reader import START, read_record
from tunery.runtime.journal.refusals import refusal_of

KEY: Final = "tenant-a"
PARTITION: Final = partition_of(KEY.encode())
ELSEWHERE: Final = next(
    key for key in map(str, range(99)) if partition_of(key.encode()) != PARTITION
)
TAKE: Final = HoldSeats(seats=1)
DEEP: Final = "[" * 100_000
FULL: Final = MESSAGE_BYTES_MAX - 250  # its record says more than the command: above the limit


def command(body: str, **rest: Any) -> bytes:
    """A command whose body is this text, which need not be JSON."""
    frame = {"id": str(uuid4()), "key": KEY, "tenant": KEY, "body": "@"} | rest
    return msgspec.json.encode(frame).replace(b'"@"', body.encode())


def plain(**rest: Any) -> bytes:
    return command('{"type":"HoldSeats.v1","seats":1}', **rest)


#: what was sent, and what the journal must say of it
MALFORMED: Final[dict[str, tuple[bytes, str]]] = {
    "garbage": (b"\x00\xff not json", "JSON is malformed"),
    "nothing": (b"", "truncated"),
    "half a record": (plain()[:-9], "truncated"),
    "not UTF-8": (b'{"id":"\xff\xfe"}', "can't decode byte 0xff"),
    "half a surrogate pair": (plain().replace(b"tenant-a", rb"\ud800", 1), "surrogate"),
    "another shape": (b"[1, 2]", "Expected `object`"),
    "no id": (plain(id="seven"), "badly formed hexadecimal UUID"),
    "nested without end": (command(DEEP), "recursion"),
    "a body nested without end": (command(DEEP + "]" * len(DEEP)), "recursion"),
    "an unknown type": (command('{"type":"Dance.v1"}'), "Invalid value 'Dance.v1'"),
    "another stream's command": (
        envelope(KEY, CountSeats(seats=1), str(uuid4())),
        "'CountSeats.v1'",
    ),
    "a future version": (
        command('{"type":"HoldSeats.v2","seats":1}'),
        "Invalid value 'HoldSeats.v2'",
    ),
    "no type": (command("{}"), "missing required field `type`"),
    "a number without end": (command('{"type":"HoldSeats.v1","seats":1e999}'), "out of range"),
    "a wrong type": (command('{"type":"HoldSeats.v1","seats":"1"}'), "`$.seats`"),
    "another partition's key": (
        envelope(ELSEWHERE, TAKE, str(uuid4())),
        "the key belongs to another partition",
    ),
    "no key": (envelope("", TAKE, str(uuid4())), "the key must have"),
    "a key without end": (envelope("k" * 300, TAKE, str(uuid4())), "the key must have"),
    "another tenant": (plain(tenant="tenant-b"), "the tenant is not the key"),
    "everybody's key, one tenant": (plain(key="*"), "a global command has the tenant *"),
}
SMALL: Final = plain()
TOO_LARGE: Final[dict[str, bytes]] = {
    "a trace without end": plain(traceparent="x" * FULL),
    "a correlation without end": plain(correlation="x" * FULL),
    "an idempotency key without end": plain(idempotency={"key": "x" * FULL, "body": "b"}),
}


async def decided_events(value: bytes) -> list[Any]:
    """Events of the bad command and of the good one after it, by the production host."""
    world = await World().create()
    host = world.host()
    async with running(host):
        world.log.put(SEATS.commands.name, PARTITION, KEY.encode(), value)
        await world.sender.send(SEATS, KEY, KEY, TAKE)
        events = await world.decided(KEY, 2)
    assert not host.stopped
    return events


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_command_is_journaled_as_rejected(name: str) -> None:
    value, why = MALFORMED[name]
    rejected, held = await decided_events(value)
    assert isinstance(rejected, Rejected)
    assert rejected.code == errors.MALFORMED
    refused = read_command(SEATS, Record(PARTITION, 0, 7, KEY.encode(), value), 0).refused
    assert refused is not None
    assert rejected.reason == refused.reason  # a code, and where: the texts quote the command
    assert why in refused.why
    assert isinstance(held, SeatsHeld)


@pytest.mark.parametrize("name", TOO_LARGE)
async def test_a_command_whose_record_would_be_too_large_is_journaled_as_such(name: str) -> None:
    assert len(TOO_LARGE[name]) <= MESSAGE_BYTES_MAX
    rejected, held = await decided_events(TOO_LARGE[name])
    assert rejected.code == errors.TOO_LARGE
    assert isinstance(held, SeatsHeld)


async def test_a_command_of_ten_megabytes_is_refused_by_the_sender() -> None:
    world = await World().create()
    with pytest.raises(TooLarge, match="above the limit"):
        await world.sender.send(SEATS, KEY, KEY, TAKE, correlation="x" * 10_000_000)
    assert world.log.topics[SEATS.commands.name][PARTITION].records == []


def decided(value: bytes, timestamp: int, fold: Fold[Seats]) -> Fold[Seats]:
    record = Record(PARTITION, fold.position.offset, timestamp, KEY.encode(), value)
    return decide_record(SEATS_AGGREGATE, fold, record, fold.position.offset).fold


def test_entry_times_never_decrease_under_any_clock() -> None:
    fold = Fold(Seats())
    for timestamp, at in ((1_000, 1_000), (-5, 1_000), (0, 1_000), (999, 1_000), (1_001, 1_001)):
        fold = decided(plain(), timestamp, fold)
        assert fold.at == at


@pytest.mark.parametrize("name", MALFORMED)
def test_the_same_bytes_give_the_same_record(name: str) -> None:
    value, _ = MALFORMED[name]
    record = Record(PARTITION, 0, 7, KEY.encode(), value)
    first, second = (decide_record(SEATS_AGGREGATE, Fold(Seats()), record, 0) for _ in range(2))
    assert first.value == second.value


@st.composite
def almost(draw: st.DrawFn) -> bytes:
    """A command with some bytes replaced, or none of it."""
    value = bytearray(draw(st.sampled_from([value for value, _ in MALFORMED.values()] + [SMALL])))
    value = value[: draw(st.integers(0, 400))]
    for index in draw(st.lists(st.integers(0, max(0, len(value) - 1)), max_size=4)):
        value[index : index + 1] = draw(st.binary(max_size=3))
    return bytes(value)


ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@st.composite
def odd(draw: st.DrawFn) -> bytes:
    """A command with some fields of its envelope or body replaced by anything."""
    body = {"type": "HoldSeats.v1", "seats": 1} | draw(
        st.dictionaries(st.sampled_from(["type", "seats", "x"]), ANYTHING, max_size=2)
    )
    fields = st.sampled_from(Envelope.__struct_fields__)
    frame = {"id": str(UUID(int=7)), "key": KEY, "tenant": KEY, "body": body}
    return json.dumps(frame | draw(st.dictionaries(fields, ANYTHING, max_size=2))).encode()


@given(st.lists(almost() | odd(), min_size=1, max_size=5))
def test_no_command_stops_an_owner_and_its_entries_can_be_decoded(values: list[bytes]) -> None:
    fold, position = Fold(Seats()), START
    for offset, value in enumerate(values):
        record = Record(PARTITION, offset, 7, KEY.encode(), value)
        try:
            written = decide_record(SEATS_AGGREGATE, fold, record, offset)
        except Poison:
            continue  # bytes that say they are a saga's
        fold = written.fold
        again = Record(PARTITION, position.offset, 7, written.key, written.value)
        judged = read_record(SEATS, codec_of(SEATS), position, again)
        assert judged.accepted is not None
        position = judged.position


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda saga: command('{"type":"HoldSeats.v9"}', **saga),
        lambda saga: plain(traceparent="x" * FULL, **saga),
    ],
    ids=["a future version", "too large"],
)
def test_review2_e7_an_undecodable_command_of_a_saga_stops_the_partition_until_it_is_refused(
    spoilt: Callable[[dict[str, Any]], bytes],
) -> None:
    value = spoilt({"source": ["tally", 0, 0, 5, 0]})
    record = Record(PARTITION, 3, 7, KEY.encode(), value)
    with pytest.raises(Poison, match=rf"commands\)/{PARTITION} at offset 3"):
        decide_record(SEATS_AGGREGATE, Fold(Seats()), record, 0)
    cause = Fold(Seats()).position.acceptance.cause + 1
    order = refusal_of(record, cause, "ada@ops", "sent by a version that is gone")
    decided = decide_record(SEATS_AGGREGATE, Fold(Seats()), record, 0, refusal=order)
    (rejected,) = decided.events
    assert isinstance(rejected, Rejected)
    assert (rejected.code, rejected.reason.params) == (
        errors.OPERATOR_REFUSED,
        {"operator": "ada@ops", "why": "sent by a version that is gone"},
    )
    again = record._replace(offset=4, value=plain(source=["tally", 0, 0, 5, 0]))
    repeated = decide_record(SEATS_AGGREGATE, decided.fold, again, 1)
    assert isinstance(repeated.events[0], Repeated), "the reaction counts as decided"


def test_review2_e7_an_order_refuses_no_other_command() -> None:
    record = Record(PARTITION, 3, 7, KEY.encode(), plain())
    for order in (
        refusal_of(record, 7, "ada@ops", "another number"),
        refusal_of(record._replace(value=plain()), 0, "ada@ops", "other bytes"),
    ):
        decided = decide_record(SEATS_AGGREGATE, Fold(Seats()), record, 0, refusal=order)
        assert isinstance(decided.events[0], SeatsHeld)
