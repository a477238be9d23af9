import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import pytest_asyncio

from examples.first_stream import SEATS, SEATS_AGGREGATE, HoldSeats, Seats
from schemas.account import PeriodEnded, ResumeTenant
from schemas.envelope import Claim, Entry
from schemas.streams import PARTITIONS
from schemas.topics import STREAMS, TOPICS
from schemas.units import DAY_MS
from services.billing.app import ACCOUNTS
from tests.unit.services.billing.domain.test_decide import create_tenant
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, World, until
from tests.virtual_time import on_virtual_time
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.broker_time import AHEAD_MS_MAX
from tunery.runtime.hosts.owner import PartitionOwner, Settled
from tunery.runtime.ids import new_id
from tunery.runtime.journal.codec import decode_record, encode
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.tools.verify import Replay, replay

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())


@pytest_asyncio.fixture
async def world() -> World:
    return await World().create()


@asynccontextmanager
async def owning(
    world: World, settled: list[Settled], name: str = "a"
) -> AsyncIterator[PartitionOwner[Seats]]:
    owner = PartitionOwner(world, SEATS_AGGREGATE, PARTITION, name, new_id, QUICK, settled.append)
    task = asyncio.create_task(owner.run())
    try:
        await until(lambda: owner.serving)
        yield owner
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def hold(world: World, count: int = 1) -> list[str]:
    body = HoldSeats(seats=1)
    return [await world.sender.send(SEATS, KEY, KEY, body) for _ in range(count)]


def claims(world: World) -> list[Claim]:
    records = world.log.topics[SEATS.journal.name][PARTITION].records
    decoded = [decode_record(record.value) for record in records]
    return [record for record in decoded if isinstance(record, Claim)]


@on_virtual_time
async def test_it_claims_its_partition_before_it_serves(world: World) -> None:
    async with owning(world, []) as owner:
        (claim,) = claims(world)
        assert claim.owner == "a"
        assert owner.settled is not None
        assert (owner.settled.position.offset, owner.settled.last_offset) == (1, -1)


@on_virtual_time
async def test_a_command_is_settled_once_its_entry_is_in_the_journal(world: World) -> None:
    settled: list[Settled] = []
    async with owning(world, settled) as owner:
        ids = await hold(world, 3)
        await until(lambda: len(settled) == 3)
        assert [done.command_id for done in settled] == ids
        assert [done.offset for done in settled] == [1, 2, 3]
        assert owner.settled is not None
        assert len(owner.settled.state[KEY].held) == 3


@on_virtual_time
async def test_it_stands_down_before_a_later_claim_and_claims_again(world: World) -> None:
    settled: list[Settled] = []
    async with owning(world, settled):
        await hold(world)
        await until(lambda: len(settled) == 1)
        rival = encode(Claim(owner="rival", nonce="n"))
        world.log.put(SEATS.journal.name, PARTITION, b"", rival)
        (command_id,) = await hold(world)
        await until(lambda: len(claims(world)) == 3)
        await until(lambda: len(settled) == 2)
    assert [claim.owner for claim in claims(world)] == ["a", "rival", "a"]
    assert settled[1].command_id == command_id
    accepted = [entry for entry, _ in world.entries(KEY) if isinstance(entry, Entry)]
    assert [entry.epoch for entry in accepted][-1] == settled[1].offset - 1


@on_virtual_time
async def test_of_two_owners_at_once_every_command_is_accepted_once(world: World) -> None:
    async with owning(world, [], "a"), owning(world, [], "b"):
        await hold(world, 5)
        await until(lambda: replayed(world).accepted >= 5)
        await asyncio.sleep(0.1)
    assert replayed(world).accepted == 5
    assert len(replayed(world).fold.state[KEY].held) == 5


def replayed(world: World) -> Replay[Seats]:
    records = world.log.topics[SEATS.journal.name][PARTITION].records
    return replay(SEATS_AGGREGATE, PARTITION, records)


class ClockAhead(SystemClock):
    """The broker's clock, once it is corrected again."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@on_virtual_time
async def test_money_b5_a_brokers_clock_an_hour_ahead_is_an_alarm_and_time_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ClockAhead()
    world = await World(log=MemoryLog(clock, 50)).create()
    settled: list[Settled] = []
    async with owning(world, settled):
        await hold(world)
        clock.ahead_ms = 3_600_000
        await hold(world, 3)
        clock.ahead_ms = 0
        await hold(world)
        await until(lambda: len(settled) >= 5)  # a hold may expire, too
    times = [entry.at for entry, _ in world.entries(KEY)]
    assert max(times) - clock.now_ms() < 2 * AHEAD_MS_MAX
    assert [record.getMessage() for record in caplog.records].count("owner.broker_time_ahead") <= 1
    assert "owner.broker_time_ahead" in caplog.text


@pytest.mark.parametrize("is_asked", [True, False], ids=["a command", "nothing is asked"])
@on_virtual_time
async def test_review2_e3_months_of_many_tenants_end_within_moments(is_asked: bool) -> None:
    """Production's limits: a tick a second, of one tenant, took five minutes for these.

    The machine slept. An owner without commands was as late as that.
    """
    clock = ClockAhead()
    world = World(log=MemoryLog(clock, 50), clock=clock)
    await world.log.create(TOPICS, PARTITIONS)
    names = (f"t{number}" for number in itertools.count())
    tenants = [*itertools.islice((name for name in names if partition_of(name.encode()) == 3), 300)]
    sender, settled = Sender(world.log, STREAMS), list[Settled]()
    for tenant in tenants:
        await sender.send("account", tenant, tenant, create_tenant())
    owner = PartitionOwner(world, ACCOUNTS, 3, "a", new_id, HostLimits(), settled.append)
    task = asyncio.create_task(owner.run())
    try:
        await until(lambda: len(settled) == len(tenants))
        clock.ahead_ms = 40 * DAY_MS
        if is_asked:
            await sender.send("account", tenants[0], tenants[0], ResumeTenant())
        await until(lambda: sum(_ends_a_month(done) for done in settled) == len(tenants))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(settled) == 2 * len(tenants) + is_asked, "one tick each"


def _ends_a_month(settled: Settled) -> bool:
    return any(isinstance(event, PeriodEnded) for event in settled.events)
