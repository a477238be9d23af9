"""Levels: who may raise them, and what becomes of an event of a later level.

It is refused, written, or skipped, and an older reader says why it stops.
"""

from dataclasses import replace
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
import pytest

from examples.first_stream import (
    SEATS,
    SEATS_AGGREGATE,
    HoldSeats,
    Seats,
    SeatsCommand,
    SeatsEvent,
    SeatsHeld,
    decide_seats,
    evolve_seats,
)
from schemas import errors
from schemas.envelope import Context, Entry, Message, Reason, Rejected, Source
from schemas.topics import STREAMS
from tests.unit.tunery.runtime.journal.memory_fixture import envelope
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.memory_servers import memory_servers
from tunery.runtime.bus.abstract import LevelTooLow, Record
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys, operator_keys
from tunery.runtime.journal.acceptance import Poison, Unreadable
from tunery.runtime.journal.codec import codec_of, decode_record
from tunery.runtime.journal.decision import Decided, decide_record
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.reader import START, Accepted, read_record
from tunery.runtime.levels import LogLevels, ReleaseTooOld
from tunery.runtime.tools.upgrade import raise_level
from tunery.runtime.verbs import Aggregate

KEY: Final = "tenant-a"
PARTITION: Final = partition_of(KEY.encode())


class Praised(Message):
    SINCE: ClassVar[int] = 2


class Remarked(Message):
    """An event for people alone."""

    SINCE: ClassVar[int] = 2
    SKIPPABLE: ClassVar[bool] = True


NewEvent: TypeAlias = SeatsEvent | Praised | Remarked


def releasing(*events: Message) -> Aggregate[Seats]:
    """The next release: it writes these events after each hold."""

    def decide(state: Seats, command: SeatsCommand, context: Context) -> tuple[Message, ...]:
        decided = decide_seats(state, command, context)
        return (*decided, *events) if isinstance(decided[0], SeatsHeld) else decided

    def evolve(state: Seats, event: Any, context: Context) -> Seats:
        return (
            state if isinstance(event, Praised | Remarked) else evolve_seats(state, event, context)
        )

    newer = replace(SEATS, event=NewEvent, level=2)
    return replace(SEATS_AGGREGATE, stream=newer, decide=decide, evolve=evolve)


def decide(
    aggregate: Aggregate[Seats], fold: Fold[Seats], level: int, source: Source | None = None
) -> Decided[Seats]:
    cause = fold.position.acceptance.cause + 1
    command_id = f"00000000-0000-0000-0000-{cause:012}"
    value = envelope(KEY, HoldSeats(seats=1), command_id, source=source)
    record = Record(PARTITION, cause, 1_000, KEY.encode(), value)
    return decide_record(aggregate, fold, record, fold.position.offset, level=level)


def claimed() -> Fold[Seats]:
    """A fold after the first claim of the partition."""
    record = Record(PARTITION, 0, 1, b"", b'{"record":"claim","owner":"a","nonce":"n"}')
    judged = read_record(SEATS, codec_of(SEATS), START, record)
    return Fold(Seats(), judged.position)


def as_old_release(decided: Decided[Seats], fold: Fold[Seats]) -> Accepted | None:
    """What a reader of the release before makes of the record."""
    record = Record(PARTITION, fold.position.offset, 1, decided.key, decided.value)
    return read_record(SEATS, codec_of(SEATS), fold.position, record).accepted


def test_an_event_of_a_later_level_is_refused_until_the_log_has_it() -> None:
    fold, newer = claimed(), releasing(Praised())
    (refused,) = decide(newer, fold, level=1).events
    assert refused == Rejected(
        code=errors.LEVEL_TOO_LOW,
        reason=Reason(code="level_too_low", params={"needed": 2, "level": 1}),
    )
    held, praised = decide(newer, fold, level=2).events
    assert (type(held), type(praised)) == (SeatsHeld, Praised)


def test_a_reaction_that_needs_a_later_level_is_not_answered_with_a_refusal() -> None:
    source = Source("tally", 0, 0, 1, 0)
    with pytest.raises(Poison, match=r"needs level 2 .* which is at 1: .*tunery upgrade finalize"):
        decide(releasing(Praised()), claimed(), level=1, source=source)


def test_records_below_the_second_level_have_the_bytes_of_before() -> None:
    value = decide(releasing(), claimed(), level=1).value
    assert b"level" not in value
    assert b"skippable" not in value
    assert value == decide(SEATS_AGGREGATE, claimed(), level=1).value


def test_once_raised_the_level_of_a_partition_never_falls() -> None:
    newer = releasing(Praised())
    first = decide(newer, claimed(), level=2)
    again = decide(newer, first.fold, level=1)  # an owner that has not read the order yet
    assert [decoded(each).level for each in (first, again)] == [2, 2]
    assert type(again.events[-1]) is Praised


def test_an_older_release_stops_at_the_level_and_says_what_to_do() -> None:
    decided = decide(releasing(), claimed(), level=2)  # also where no event is new
    with pytest.raises(Unreadable, match="the log is at level 2, and this release reads up to 1"):
        as_old_release(decided, claimed())


def test_an_older_release_reads_past_what_no_fold_needs() -> None:
    decided = decide(releasing(Remarked()), claimed(), level=1)
    assert decoded(decided).skippable == (1,)
    accepted = as_old_release(decided, claimed())
    assert accepted is not None
    assert [type(event) for event in accepted.events] == [SeatsHeld]
    newer = releasing().stream
    assert len(codec_of(newer).events(decoded(decided))) == 2


def test_only_what_is_marked_may_be_skipped() -> None:
    entry = decoded(decide(releasing(Praised()), claimed(), level=2))
    unmarked = msgspec.structs.replace(entry, level=1)
    value = msgspec.json.encode(unmarked)
    record = Record(PARTITION, 1, 1, KEY.encode(), value)
    with pytest.raises(Unreadable, match=r"Invalid value 'Praised\.v1'"):
        read_record(SEATS, codec_of(SEATS), claimed().position, record)


def test_a_known_event_that_is_broken_is_not_skipped() -> None:
    held = msgspec.Raw(b'{"type":"SeatsHeld.v1","seats":"many"}')
    entry = decoded(decide(SEATS_AGGREGATE, claimed(), level=1))
    broken = msgspec.structs.replace(entry, events=(held,), skippable=(0,))
    record = Record(PARTITION, 1, 1, KEY.encode(), msgspec.json.encode(broken))
    with pytest.raises(Unreadable, match="Expected `int`"):
        read_record(SEATS, codec_of(SEATS), claimed().position, record)


def decoded(decided: Decided[Seats]) -> Entry:
    entry = decode_record(decided.value)
    assert isinstance(entry, Entry)
    return entry


# --- orders ---------------------------------------------------------------------------------------

SECRET: Final = b"s" * 32
OPERATOR: Final = operator_keys(SECRET, "operator")


async def log_with(*orders: tuple[SenderKeys, str, int]) -> MemoryLog:
    """A log on which these senders have ordered levels of streams."""
    log = (await memory_servers()).log
    for keys, stream, level in orders:
        await raise_level(log, keys, [stream], level, "ada@desk")
    return log


async def test_an_order_of_an_operator_raises_the_stream_that_it_names() -> None:
    log = await log_with((OPERATOR, "job", 2), (OPERATOR, "job", 1))
    levels = LogLevels(readable=2, keys=keys_of(SECRET, "scheduler"))
    await levels.load(log)
    assert (levels.of("job"), levels.of("pool")) == (2, 1)


@pytest.mark.parametrize(
    "keys", [operator_keys(SECRET, "gateway"), operator_keys(b"t" * 32, "operator"), UNSIGNED]
)
async def test_an_order_of_anybody_else_is_not_followed(keys: SenderKeys) -> None:
    levels = LogLevels(readable=1, keys=keys_of(SECRET, "scheduler"))
    await levels.load(await log_with((keys, "job", 2)))
    assert levels.of("job") == 1


async def test_a_release_that_was_left_behind_does_not_start() -> None:
    levels = LogLevels(readable=1, keys=keys_of(SECRET, "gateway"))
    with pytest.raises(ReleaseTooOld, match="raised to level 2, and this release reads up to 1"):
        await levels.load(await log_with((OPERATOR, "pool", 2)))


async def test_a_process_follows_an_order_while_it_runs() -> None:
    log = await log_with()
    levels = LogLevels(readable=2)
    await levels.load(log)
    orders = await levels.follow(log)
    await raise_level(log, OPERATOR, ["model"], 2, "ada@desk")
    await levels.poll(orders, 1_000)
    assert levels.of("model") == 2


async def test_a_command_of_a_later_level_is_not_sent() -> None:
    sent = Sender(await log_with(), STREAMS, level_of_stream=lambda _: 1)
    with pytest.raises(LevelTooLow, match="needs level 2 of the log, which is at 1"):
        await sent.send("job", KEY, KEY, Praised())
