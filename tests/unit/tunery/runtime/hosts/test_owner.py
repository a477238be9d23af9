"""The owner of one partition, over a log that fails when a test says so."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from examples.first_stream import SEATS, SEATS_AGGREGATE, HoldSeats, SeatsHeld
from schemas.envelope import Claim
from schemas.topics import SNAPSHOTS
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, World, until
from tunery.runtime.bus.abstract import Appended, AppendUnknown, Unavailable, Writer
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.hosts.owner import PartitionOwner, Settled
from tunery.runtime.ids import new_id
from tunery.runtime.journal.acceptance import Divergence
from tunery.runtime.journal.codec import decode_record, encode
from tunery.runtime.journal.ports import HostLimits

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())


class FailingWriter:
    """A writer of the log in memory. before: what happens ahead of each append but the claim."""

    def __init__(self, writer: Writer, before: Callable[[], Awaitable[None]]) -> None:
        self._writer, self._before = writer, before

    async def submit(self, key: bytes, value: bytes) -> Awaitable[Appended]:
        await self._before()
        return await self._writer.submit(key, value)

    async def append(self, key: bytes, value: bytes) -> Appended:
        return await self._writer.append(key, value)

    async def close(self) -> None:
        await self._writer.close()


@dataclass
class Partition:
    """One partition of the seats with an owner that tests start and look at."""

    world: World
    limits: HostLimits = QUICK
    settled: list[Settled] = field(default_factory=list)
    failures: list[Exception | Callable[[], None]] = field(default_factory=list)

    def owner(self) -> PartitionOwner[Any]:
        log = self.world.log
        open_writer = log.writer

        async def writer(topic: str, partition: int) -> Any:
            return FailingWriter(await open_writer(topic, partition), self._fail)

        log.writer = writer  # type: ignore[method-assign]  # the fault of this test
        return PartitionOwner(
            self.world, SEATS_AGGREGATE, PARTITION, "a", new_id, self.limits, self.settled.append
        )

    async def _fail(self) -> None:
        """Raise or call the next of `failures`, once."""
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            failure()

    async def hold(self, seats: int = 1) -> None:
        await self.world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=seats))

    @property
    def claims(self) -> int:
        records = self.world.log.topics[SEATS.journal.name][PARTITION].records
        return sum(isinstance(decode_record(record.value), Claim) for record in records)

    async def run_until(self, owner: PartitionOwner[Any], condition: Callable[[], bool]) -> None:
        """Run the owner until the condition holds. Raises what the owner raises."""
        running = asyncio.create_task(owner.run())
        waiting = asyncio.create_task(until(condition))
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        for task in (running, waiting):
            done = task.done()
            task.cancel()
            with suppress(asyncio.CancelledError):
                if done:
                    task.result()
                await task


@pytest.fixture
async def partition() -> Partition:
    return Partition(await World().create())


async def test_settled_decisions_are_reported_in_order_with_their_offsets(
    partition: Partition,
) -> None:
    for _ in range(3):
        await partition.hold()
    owner = partition.owner()
    await partition.run_until(owner, lambda: len(partition.settled) == 3)
    assert [settled.offset for settled in partition.settled] == [1, 2, 3]
    ids = [entry.command_id for entry, _ in partition.world.entries(KEY)]
    assert [settled.command_id for settled in partition.settled] == ids
    assert owner.settled is not None
    assert owner.settled.state[KEY].held == 3


async def test_an_owner_serves_after_its_claim_and_not_before(partition: Partition) -> None:
    owner = partition.owner()
    assert not owner.serving
    assert owner.settled is None
    await partition.run_until(owner, lambda: owner.serving)
    assert partition.claims == 1


async def test_an_append_without_an_answer_is_decided_once_under_a_new_claim(
    partition: Partition,
) -> None:
    partition.failures.append(AppendUnknown("no answer in time"))
    await partition.hold()
    await partition.run_until(partition.owner(), lambda: len(partition.settled) == 1)
    assert partition.claims == 2
    assert [type(event) for event in partition.world.events(KEY)] == [SeatsHeld]


async def test_a_record_of_another_writer_in_between_ends_the_term(partition: Partition) -> None:
    foreign = encode(Claim(owner="b", nonce="n"))
    log = partition.world.log
    partition.failures.append(lambda: log.put(SEATS.journal.name, PARTITION, b"", foreign) and None)
    await partition.hold()
    await partition.run_until(partition.owner(), lambda: len(partition.settled) == 1)
    assert partition.claims == 3
    # The decision behind the foreign claim is void, and its command was decided once more.
    assert len(partition.world.entries(KEY)) == 2
    assert partition.settled[0].offset == 4


async def test_an_outage_of_the_log_ends_the_term_and_not_the_owner(partition: Partition) -> None:
    partition.failures.append(Unavailable("the broker is away"))
    await partition.hold()
    await partition.run_until(partition.owner(), lambda: len(partition.settled) == 1)
    assert partition.claims == 2


async def test_no_more_records_than_the_window_are_in_flight(partition: Partition) -> None:
    partition.limits = HostLimits(idle_wait_ms=20, retry_ms=10, back_off_ms_max=40, window=2)
    in_flight: list[int] = []
    submitted = 0

    def count() -> None:
        nonlocal submitted
        submitted += 1
        in_flight.append(submitted - len(partition.settled))

    partition.failures += [count] * 6
    for _ in range(6):
        await partition.hold()
    await partition.run_until(partition.owner(), lambda: len(partition.settled) == 6)
    assert max(in_flight) == 2


async def test_a_snapshot_is_kept_after_so_many_entries(partition: Partition) -> None:
    partition.limits = HostLimits(
        idle_wait_ms=20, retry_ms=10, back_off_ms_max=40, snapshot_every=2
    )
    snapshots = partition.world.log.topics[SNAPSHOTS.name]
    for _ in range(2):
        await partition.hold()
    await partition.run_until(partition.owner(), lambda: any(topic.records for topic in snapshots))
    assert len(partition.settled) == 2
    assert len(partition.world.blobs.bodies) == 1


async def test_a_command_that_is_missing_stops_the_partition(partition: Partition) -> None:
    commands = partition.world.log.topics[SEATS.commands.name][PARTITION]
    for _ in range(3):
        await partition.hold()
    commands.records[1] = commands.records[1]._replace(offset=7)
    with pytest.raises(Divergence, match="command 1 is missing"):
        await partition.run_until(partition.owner(), lambda: len(partition.settled) == 3)


async def test_each_claim_without_a_decision_doubles_the_pause_up_to_its_limit(
    partition: Partition,
) -> None:
    partition.limits = HostLimits(back_off_ms_max=100)
    owner = partition.owner()
    rest_ms = partition.world.log.session_timeout_ms // 5
    pauses_ms = []
    for claims in range(6):
        owner._futile_claims = claims
        pauses_ms.append(owner._back_off_ms())
    assert 1.2 * rest_ms - 1 <= pauses_ms[0] <= 2 * rest_ms
    assert 2.4 * rest_ms - 2 <= pauses_ms[1] <= 4 * rest_ms
    assert pauses_ms[-1] == 100
