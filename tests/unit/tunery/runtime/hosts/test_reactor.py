from collections.abc import Sequence
from typing import ClassVar

import pytest_asyncio

from examples.first_stream import SEATS, HoldSeats, SeatsEvent
from schemas.envelope import Header, Message, Source
from schemas.ids import reaction_id
from simulator.event_core.streams import STREAMS, TALLY, TALLY_AGGREGATE, SeatsCounted, react_seats
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, World, until
from tunery.runtime.bus.abstract import Appended, AppendUnknown
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.acceptance import Poison
from tunery.runtime.journal.codec import decode_envelope
from tunery.runtime.verbs import Send

KEY, TALLIED = "tenant-a", "tenant-a-tally"


class CountSeatsTwice(Message):
    SINCE: ClassVar[int] = 2


@pytest_asyncio.fixture
async def world() -> World:
    return await World().create()


def reactor(world: World) -> Reactor:
    return Reactor(world, SEATS, react_seats, streams=STREAMS, limits=QUICK)


def sent(world: World) -> list[str]:
    partition = world.log.topics[TALLY.commands.name][partition_of(TALLIED.encode())]
    return [decode_envelope(record.value).id for record in partition.records]


async def take(world: World, count: int) -> None:
    for _ in range(count):
        await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1), correlation="request")


async def test_each_event_leads_to_its_command_in_order(world: World) -> None:
    tally = AggregateHost(world, TALLY_AGGREGATE, limits=QUICK)
    async with running(world.host(), reactor(world), tally):
        await take(world, 3)
        events = await world.decided(TALLIED, 3, TALLY)
    assert [event.total for event in events if isinstance(event, SeatsCounted)] == [1, 2, 3]
    source = partition_of(KEY.encode())
    claim = 1  # the journal's first record
    assert sent(world) == [reaction_id(Source("seats", source, 0, claim + n, 0)) for n in range(3)]
    entry, _ = world.entries(TALLIED, TALLY)[0]
    assert entry.causation == world.entries(KEY)[0][0].command_id
    assert entry.correlation == "request"


async def test_after_a_restart_it_goes_on_where_it_was(world: World) -> None:
    partition = partition_of(KEY.encode())
    async with running(world.host(), reactor(world)):
        await take(world, 2)
        await until(lambda: len(sent(world)) == 2)
        group, topic = "tunery.toy.reacts.seats.positions", SEATS.journal.name
        await until(lambda: world.log._commits[group, topic].get(partition, (0,))[0] == 3)
    async with running(world.host(), reactor(world)):
        await take(world, 1)
        await until(lambda: len(sent(world)) == 3)
    assert len(set(sent(world))) == 3


async def test_lost_positions_only_mean_that_everything_is_sent_again(world: World) -> None:
    tally = AggregateHost(world, TALLY_AGGREGATE, limits=QUICK)
    async with running(world.host(), reactor(world), tally):
        await take(world, 3)
        await world.decided(TALLIED, 3, TALLY)
    world.log._commits.clear()
    async with running(world.host(), reactor(world), tally):
        await take(world, 1)
        events = await world.decided(TALLIED, 7, TALLY)
    assert [event.total for event in events if isinstance(event, SeatsCounted)] == [1, 2, 3, 4]


async def test_an_unknown_outcome_is_sent_again(world: World) -> None:
    class Doubtful(MemoryLog):
        doubts = 2

        async def send(
            self, topic: str, key: bytes, value: bytes, partition: int | None = None
        ) -> Appended:
            appended = await super().send(topic, key, value, partition)
            if topic == TALLY.commands.name and self.doubts:
                self.doubts -= 1
                raise AppendUnknown("lost the answer")
            return appended

    world = await World(Doubtful(session_timeout_ms=50)).create()
    async with running(world.host(), reactor(world)):
        await take(world, 2)
        await until(lambda: len(sent(world)) == 4)
    assert sent(world)[0] == sent(world)[1] == sent(world)[2] != sent(world)[3]


async def test_when_some_of_a_batch_are_in_the_log_all_are_sent_again(world: World) -> None:
    class Doubtful(MemoryLog):
        batches: ClassVar[list[int]] = []

        async def send_all(
            self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
        ) -> None:
            self.batches.append(len(records))
            is_first = len(self.batches) == 1
            await super().send_all(topic, partition, records[:1] if is_first else records)
            if is_first:
                raise AppendUnknown("lost the answer")

    world = await World(Doubtful(session_timeout_ms=50)).create()
    async with running(world.host()):
        await take(world, 3)
        await world.decided(KEY, 3)
        tally = AggregateHost(world, TALLY_AGGREGATE, limits=QUICK)
        async with running(reactor(world), tally):
            events = await world.decided(TALLIED, 3, TALLY)
    assert Doubtful.batches == [3, 3]
    assert [event.total for event in events if isinstance(event, SeatsCounted)] == [1, 2, 3]


async def test_what_follows_from_entries_before_one_that_stops_the_partition_is_sent(
    world: World,
) -> None:
    def second_fails(header: Header, event: SeatsEvent) -> tuple[Send, ...]:
        if header.seq > 1:
            raise ValueError("cannot react")
        return react_seats(header, event)

    host = Reactor(world, SEATS, second_fails, streams=STREAMS, limits=QUICK)
    async with running(world.host()):
        await take(world, 2)
        await world.decided(KEY, 2)
        async with running(host):
            await until(lambda: bool(host.stopped))
    assert len(sent(world)) == 1


async def test_a_reaction_that_fails_stops_its_partition_and_says_where(world: World) -> None:
    def broken(header: Header, event: SeatsEvent) -> tuple[Send, ...]:
        raise ValueError(f"cannot react to {type(event).__name__}")

    host = Reactor(world, SEATS, broken, streams=STREAMS, limits=QUICK)
    async with running(world.host(), host):
        await take(world, 1)
        await until(lambda: bool(host.stopped))
    (stopped,) = host.stopped.values()
    assert isinstance(stopped, Poison)
    assert "cannot react to SeatsHeld" in str(stopped)


async def test_a_reaction_of_a_later_level_than_its_event_stops_its_partition(world: World) -> None:
    def hasty(header: Header, _: SeatsEvent) -> tuple[Send, ...]:
        return (Send(TALLY.name, header.key, header.tenant, CountSeatsTwice()),)

    host = Reactor(world, SEATS, hasty, streams=STREAMS, limits=QUICK)
    async with running(world.host(), host):
        await take(world, 1)
        await until(lambda: bool(host.stopped))
    (stopped,) = host.stopped.values()
    assert "a reaction needs level 2 of the log, and its event has 1" in str(stopped)
