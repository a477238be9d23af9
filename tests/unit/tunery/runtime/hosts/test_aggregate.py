import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, ClassVar
from uuid import uuid4

import msgspec
import pytest_asyncio

from examples.first_stream import (
    SEATS,
    SEATS_AGGREGATE,
    SEATS_MAX,
    HoldSeats,
    ReleaseSeats,
    SeatsEvent,
    SeatsHeld,
    SeatsReleased,
)
from schemas import errors
from schemas.envelope import (
    Claim,
    Entry,
    Idempotency,
    Message,
    Reason,
    Rejected,
    Repeated,
    Source,
    Tick,
)
from schemas.levels import LevelOrder
from simulator.event_core.streams import CountSeats
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, WAIT_S, World, envelope, until
from tests.virtual_time import on_virtual_time
from tunery.runtime.bus.abstract import Appended, Record
from tunery.runtime.bus.memory import MemoryLog, MemoryWriter
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.journal.acceptance import Divergence, Poison
from tunery.runtime.journal.codec import encode
from tunery.runtime.levels import LogLevels

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())


@pytest_asyncio.fixture
async def world() -> World:
    return await World().create()


def put(world: World, value: bytes, partition: int = PARTITION) -> None:
    world.log.put(SEATS.commands.name, partition, KEY.encode(), value)


async def take(world: World, seats: int = 1, **rest: Any) -> str:
    return await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=seats), **rest)


@on_virtual_time
async def test_each_command_gives_one_entry_in_order(world: World) -> None:
    async with running(world.host()):
        ids = [await take(world, 2), await take(world, 2), await take(world, 2)]
        ids.append(await world.sender.send(SEATS, KEY, KEY, ReleaseSeats(seats=3)))
        first, second, third, fourth = await world.decided(KEY, 4)
    assert isinstance(first, SeatsHeld)
    assert isinstance(second, SeatsHeld)
    held = Reason(code="seats_at_most", params={"held": 4, "limit": SEATS_MAX})
    assert third == Rejected(code="full", reason=held)
    assert fourth == SeatsReleased(seats=3)
    entries = [entry for entry, _ in world.entries(KEY)]
    assert [entry.command_id for entry in entries] == ids
    assert [entry.cause for entry in entries] == [0, 1, 2, 3]
    assert [entry.seq for entry in entries] == [1, 2, 3, 4]
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)


@on_virtual_time
async def test_a_second_owner_goes_on_where_the_first_stopped(world: World) -> None:
    async with running(world.host("a")):
        await take(world, 4)
        await world.decided(KEY, 1)
    await take(world, 4)
    async with running(world.host("b")):
        events = await world.decided(KEY, 2)
    assert isinstance(events[1], Rejected)


@on_virtual_time
async def test_a_paused_owner_stands_down_after_a_later_claim(world: World) -> None:
    async with running(world.host()):
        await take(world)
        await world.decided(KEY, 1)
        foreign = encode(Claim(owner="b", nonce="n"))
        world.log.put(SEATS.journal.name, PARTITION, b"", foreign)
        await take(world)
        # Its next entry is void; it claims again and decides the command once more.
        await until(lambda: len(world.entries(KEY)) == 3)
    causes = [(entry.epoch, entry.cause) for entry, _ in world.entries(KEY)]
    assert causes == [(0, 0), (0, 1), (4, 1)]


@on_virtual_time
async def test_malformed_commands_are_journaled_as_rejected(world: World) -> None:
    async with running(world.host()):
        put(world, b"\x00 not json")
        put(world, envelope(KEY, HoldSeats(seats=1), "not a uuid"))
        put(world, envelope(KEY, CountSeats(seats=1), str(uuid4())))
        put(world, envelope("tenant-b", HoldSeats(seats=1), str(uuid4())))
        await take(world)
        events = await world.decided(KEY, 5)
    assert [event.code for event in events[:4]] == [errors.MALFORMED] * 4
    assert isinstance(events[4], SeatsHeld)


@on_virtual_time
async def test_a_tenant_cannot_write_under_anothers_key(world: World) -> None:
    async with running(world.host()):
        await world.sender.send(SEATS, KEY, "tenant-b", HoldSeats(seats=1))
        (event,) = await world.decided(KEY, 1)
    assert event.reason == Reason(code="tenant_not_key")


@on_virtual_time
async def test_a_saga_command_that_cannot_be_read_stops_its_partition_only(world: World) -> None:
    host = world.host()
    async with running(host):
        source = Source("tally", 0, 0, 0, 0)
        put(world, envelope(KEY, CountSeats(seats=1), str(uuid4()), source=source))
        await until(lambda: PARTITION in host.stopped)
        other = next(key for key in map(str, range(99)) if partition_of(key.encode()) != PARTITION)
        await world.sender.send(SEATS, other, other, HoldSeats(seats=1))
        await world.decided(other, 1)
    assert isinstance(host.stopped[PARTITION], Poison)
    assert world.entries(KEY) == []


class Praised(Message):
    SINCE: ClassVar[int] = 2


@on_virtual_time
async def test_a_saga_command_that_needs_a_later_level_is_decided_once_the_log_has_it(
    world: World,
) -> None:
    """Its sender waits for no refusal, so it waits for the operator who finishes the upgrade."""
    praising = replace(
        SEATS_AGGREGATE,
        stream=replace(SEATS, event=SeatsEvent | Praised, level=2),
        decide=lambda *_: (Praised(),),
        evolve=lambda state, *_: state,
    )
    world.levels = LogLevels(readable=2)
    host = AggregateHost(world, praising, owner="a", limits=QUICK)
    async with running(host):
        source = Source("tally", 0, 0, 0, 0)
        put(world, envelope(KEY, HoldSeats(seats=1), str(uuid4()), source=source))
        await until(lambda: PARTITION in host.stopped)
        order = msgspec.json.encode(LevelOrder(stream=SEATS.name, level=2, operator="ada"))
        world.levels.take([Record(0, 0, 1, b"", order)])
        await until(lambda: bool(world.entries(KEY, praising.stream)))
    assert host.stopped == {}
    assert world.events(KEY, praising.stream) == [Praised()]


@on_virtual_time
async def test_a_header_key_is_recognised_and_another_body_is_a_conflict(world: World) -> None:
    async with running(world.host()):
        first = await take(world, idempotency=Idempotency(key="k", body="x"))
        await take(world, idempotency=Idempotency(key="k", body="x"))
        await take(world, idempotency=Idempotency(key="k", body="y"))
        events = await world.decided(KEY, 3)
    assert isinstance(events[0], SeatsHeld)
    assert events[1] == Repeated(of=first)
    assert events[2].code == errors.IDEMPOTENCY_CONFLICT


@on_virtual_time
async def test_reactions_are_decided_once_and_only_upwards(world: World) -> None:
    async with running(world.host()):
        for offset in (5, 5, 4, 6):
            source = Source("tally", 0, 0, offset, 0)
            put(world, envelope(KEY, HoldSeats(seats=1), str(uuid4()), source=source))
        events = await world.decided(KEY, 4)
    assert [type(event) for event in events] == [SeatsHeld, Repeated, Repeated, SeatsHeld]


@on_virtual_time
async def test_entry_times_never_decrease(world: World) -> None:
    class Jumping:
        now = 1_700_000_000_000

        def now_ms(self) -> int:
            self.now -= 1_000
            return self.now

        def monotonic_ms(self) -> int:
            return 0

        async def sleep(self, ms: int) -> None:
            await asyncio.sleep(ms / 1_000)

    world.log.clock = Jumping()
    async with running(world.host()):
        await take(world)
        await take(world)
        await world.decided(KEY, 2)
    first, second = (entry.at for entry, _ in world.entries(KEY))
    assert first == second


class Fast:
    """Time that passes a hundred times as fast, so that holds expire soon."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(100_000 * asyncio.get_running_loop().time())

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1_000)


@on_virtual_time
async def test_a_tick_is_sent_when_a_deadline_is_due(world: World) -> None:
    world.log.clock = world.clock = Fast()
    async with running(world.host()):
        await take(world, SEATS_MAX)
        await until(lambda: len(world.events(KEY)) >= 2)
        await take(world, SEATS_MAX)
        await until(lambda: any(isinstance(e, SeatsHeld) for e in world.events(KEY)[1:]))
    commands = world.log.topics[SEATS.commands.name][PARTITION].records
    assert any(encode_tick() in record.value for record in commands)


class SlowLog(MemoryLog):
    """Appends are acknowledged a millisecond later, as by a real broker."""

    async def writer(self, topic: str, partition: int) -> MemoryWriter:
        return SlowWriter(self, topic, partition)


class SlowWriter(MemoryWriter):
    async def submit(self, key: bytes, value: bytes) -> Awaitable[Appended]:
        acknowledged: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        appended = await (await super().submit(key, value))
        asyncio.get_running_loop().call_later(0.001, acknowledged.set_result, appended)
        return acknowledged


@on_virtual_time
async def test_sched_b12_a_tick_is_sent_while_commands_never_stop_coming() -> None:
    """Finding B12: ticks waited for a moment without a command in the queue or in flight."""
    world = await World(log=SlowLog(session_timeout_ms=50)).create()
    world.log.clock = world.clock = Fast()
    topic = world.log.topics[SEATS.commands.name][PARTITION]
    journal = world.log.topics[SEATS.journal.name][PARTITION]
    async with running(world.host()), asyncio.timeout(WAIT_S):
        await take(world)
        await until(lambda: len(world.events(KEY)) > 0)
        while not any(encode_tick() in record.value for record in topic.records):
            for _ in range(96 - topic.end + journal.end):
                await take(world)
            await asyncio.sleep(0.001)
        assert topic.end - journal.end > 0, "commands still wait"


def encode_tick() -> bytes:
    return b'"type":"Tick.v1"'


@on_virtual_time
async def test_a_commands_topic_made_anew_stops_the_partition(world: World) -> None:
    async with running(world.host("a")):
        await take(world)
        await take(world)
        await world.decided(KEY, 2)
    world.log.topics[SEATS.commands.name][PARTITION].records.clear()
    for _ in range(3):
        await take(world)
    host = world.host("b")
    async with running(host):
        await until(lambda: PARTITION in host.stopped)
    assert isinstance(host.stopped[PARTITION], Divergence)
    assert "last decided command" in str(host.stopped[PARTITION])


@on_virtual_time
async def test_an_operators_claim_with_a_new_base_goes_on_after_that(world: World) -> None:
    async with running(world.host("a")):
        await take(world)
        await take(world)
        await world.decided(KEY, 2)
    world.log.topics[SEATS.commands.name][PARTITION].records.clear()
    await take(world)
    claim = encode(Claim(owner="operator", nonce="n", base=2))
    incarnation = world.log.put(SEATS.journal.name, PARTITION, b"", claim).offset
    async with running(world.host("b")):
        await world.decided(KEY, 3)
    assert [entry.cause for entry, _ in world.entries(KEY)] == [0, 1, 2]
    assert incarnation == 3


@on_virtual_time
async def test_a_journal_that_was_changed_is_named(world: World) -> None:
    async with running(world.host("a")):
        await take(world)
        await take(world)
        await world.decided(KEY, 2)
    partition = world.log.topics[SEATS.journal.name][PARTITION]
    forged = partition.records[1]
    partition.records[1] = forged._replace(value=forged.value.replace(b'"seats":1', b'"seats":2'))
    host = world.host("b")
    async with running(host):
        await until(lambda: PARTITION in host.stopped)
    assert "hash chain" in str(host.stopped[PARTITION])


@on_virtual_time
async def test_decided_commands_are_trimmed_but_for_the_last(world: World) -> None:
    host = world.host("a")
    async with running(host):
        for _ in range(3):
            await take(world)
        await world.decided(KEY, 3)
        owner = host.owners[PARTITION]
        owner._trimmed_ms -= 1_000_000
        partition = world.log.topics[SEATS.commands.name][PARTITION]
        await until(lambda: partition.start == 2)
    async with running(world.host("b")):
        await take(world)
        await world.decided(KEY, 4)


@on_virtual_time
async def test_a_stray_tick_changes_nothing(world: World) -> None:
    async with running(world.host()):
        put(world, envelope(KEY, Tick(), str(uuid4())))
        await world.decided(KEY, 1)
    ((entry, events),) = world.entries(KEY)
    assert isinstance(entry, Entry)
    assert events == ()
