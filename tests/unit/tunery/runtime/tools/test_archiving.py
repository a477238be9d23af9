"""Old records of a journal move to an archive, and readers of the journal go on as before."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest
import pytest_asyncio

from examples.first_stream import SEATS, SEATS_AGGREGATE, HoldSeats, ReleaseSeats
from schemas.streams import PARTITIONS
from schemas.topics import SNAPSHOTS
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import QUICK, World, until
from tunery.runtime.blobs.abstract import BlobsUnavailable, Listed
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.abstract import ArchiveAway, ArchiveDamaged, OutOfRange, Record
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.acceptance import Divergence
from tunery.runtime.journal.reader import START, JournalReader
from tunery.runtime.tools import archiving
from tunery.runtime.tools.archived_log import Archive, ArchivedLog
from tunery.runtime.tools.archiving import ArchiveReport, NotArchived, archive
from tunery.runtime.tools.verify import read_all, replay

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())
TOPIC = SEATS.journal.name
FOR_EVER = 1 << 60
COUNT = 12


async def decide(world: World, count: int, owner: str = "a", ports: World | None = None) -> None:
    """Add decisions to the journal, with a snapshot after every second one."""
    before, often = len(world.entries(KEY)), replace(QUICK, snapshot_every=2, standby=False)
    async with running((ports or world).host(owner, often)):
        for number in range(before, before + count):
            body = ReleaseSeats(seats=1) if number % 2 else HoldSeats(seats=1)
            await world.sender.send(SEATS, KEY, KEY, body)
            await until(lambda: len(world.entries(KEY)) > number)  # noqa: B023  # awaited at once


@pytest_asyncio.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(archiving, "SEGMENT_RECORDS_MAX", 3)
    world = await World().create()
    await decide(world, COUNT)
    return world


def over(log: MemoryLog, blobs: MemoryBlobs) -> ArchivedLog:
    return ArchivedLog(log, Archive(lambda: blobs), {TOPIC: "seats"})


async def moved(log: ArchivedLog, before_ms: int = FOR_EVER, **options: Any) -> ArchiveReport:
    return await archive(log, SEATS, PARTITION, before_ms, **options)


def kept(world: World) -> list[Record]:
    return world.log.topics[TOPIC][PARTITION].records


def damage(blobs: MemoryBlobs, key: str) -> None:
    """Flip one bit."""
    body = bytearray(blobs.bodies[key])
    body[len(body) // 2] ^= 1
    blobs.bodies[key] = bytes(body)


async def test_all_that_is_behind_both_snapshots_moves_and_reads_as_before(world: World) -> None:
    before, blobs = list(kept(world)), MemoryBlobs()
    log = over(world.log, blobs)
    report = await moved(log)
    assert report.why.startswith("its older snapshot is of offset")
    assert (len(kept(world)), report.records) == (len(before) - report.kept, report.kept + 1)
    assert report.segments == len(blobs.bodies) > 2
    assert await read_all(log, TOPIC, PARTITION) == before
    assert await log.bounds(TOPIC, PARTITION) == (0, len(before))
    for offset in (1, 4, report.kept, report.kept + 1):
        reader = await log.reader(TOPIC, {PARTITION: offset})
        read: list[Record] = []
        while len(read) < len(before) - offset:
            read += await reader.poll(100, 2)
        await reader.close()
        assert read == before[offset:]
    again = await moved(log)
    assert (again.records, again.start, again.kept) == (0, report.kept, report.kept)


async def test_young_records_and_those_without_two_snapshots_stay(world: World) -> None:
    blobs, count = MemoryBlobs(), len(kept(world))
    log = over(world.log, blobs)
    report = await moved(log, kept(world)[5].timestamp)
    assert report.why == "what follows is newer"
    assert 0 < report.records <= 5
    assert (await moved(log, 0)).records == 0
    planned = await moved(log, dry_run=True)
    assert planned.records > 0
    assert (len(kept(world)), planned.segments) == (count - report.kept, 0)
    world.log.topics[SNAPSHOTS.name][PARTITION].records.clear()
    assert (await moved(log)).why == "its owner has 0 of 2 snapshots"


async def test_owners_go_on_from_snapshots_and_fold_from_the_first_record_without_them(
    world: World,
) -> None:
    blobs = MemoryBlobs()
    log = over(world.log, blobs)
    await moved(log)
    ports = World(log=cast("Any", log), clock=world.clock, blobs=world.blobs)
    await decide(world, 2, "b", ports)
    world.blobs.bodies.clear()
    await decide(world, 4, "c", ports)
    await moved(log)
    records = await read_all(log, TOPIC, PARTITION)
    assert replay(SEATS_AGGREGATE, PARTITION, records).accepted == COUNT + 6
    assert [record.offset for record in records] == list(range(len(records)))


class Killed(BaseException):
    """The process is gone."""


class DyingLog(MemoryLog):
    """A log whose process is killed at the n-th request that changes or reads something."""

    left = FOR_EVER

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    async def trim(self, topic: str, partition: int, before: int) -> None:
        self.count()
        await super().trim(topic, partition, before)
        self.count()


class DyingBlobs(MemoryBlobs):
    """Storage of the same process: it dies before and after each request."""

    def __init__(self, log: DyingLog) -> None:
        super().__init__()
        self.log = log

    async def put(self, key: str, data: Any, **options: Any) -> Any:
        self.log.count()
        stored = await super().put(key, data, **options)
        self.log.count()
        return stored

    async def get(self, key: str, **options: Any) -> bytes:
        self.log.count()
        return await super().get(key, **options)

    async def listed(self, prefix: str) -> AsyncIterator[Listed]:
        self.log.count()
        async for each in super().listed(prefix):
            yield each


async def test_a_kill_at_each_step_loses_nothing_and_the_next_run_goes_on(world: World) -> None:
    before, step, is_killed = list(kept(world)), 0, True
    while is_killed:
        log = DyingLog()
        log.topics = {
            name: [replace(each, records=list(each.records)) for each in partitions]
            for name, partitions in world.log.topics.items()
        }
        blobs = DyingBlobs(log)
        log.left = step
        try:
            await moved(over(log, blobs))
            is_killed = False
        except Killed:
            pass
        log.left = FOR_EVER
        assert await read_all(over(log, blobs), TOPIC, PARTITION) == before, step
        report = await moved(over(log, blobs))
        assert log.topics[TOPIC][PARTITION].start == report.kept
        assert await read_all(over(log, blobs), TOPIC, PARTITION) == before, step
        step += 1
    assert step > 12


async def test_two_commands_at_the_same_time_make_segments_that_overlap(world: World) -> None:
    """One saw the journal when less of it was old."""
    before, blobs = list(kept(world)), MemoryBlobs()
    other = MemoryLog()
    other.topics = {name: [replace(p) for p in each] for name, each in world.log.topics.items()}
    other.topics[TOPIC] = [replace(p, records=list(p.records)) for p in world.log.topics[TOPIC]]
    await moved(over(other, blobs), before[4].timestamp)
    await moved(over(world.log, blobs))
    assert await read_all(over(world.log, blobs), TOPIC, PARTITION) == before
    assert await read_all(over(other, blobs), TOPIC, PARTITION) == before


async def test_storage_that_is_away_is_waited_for(world: World) -> None:
    class Away(MemoryBlobs):
        async def listed(self, prefix: str) -> AsyncIterator[Listed]:
            if prefix:
                raise BlobsUnavailable("S3 is away")
            yield Listed("", 0, 0)

    await moved(over(world.log, MemoryBlobs()))
    with pytest.raises(ArchiveAway, match="S3 is away"):
        await read_all(over(world.log, Away()), TOPIC, PARTITION)


# --- what damage is named -------------------------------------------------------------------------


async def archived(world: World) -> tuple[ArchivedLog, MemoryBlobs, list[str]]:
    blobs = MemoryBlobs()
    await moved(over(world.log, blobs))
    return over(world.log, blobs), blobs, sorted(blobs.bodies)


async def test_a_flipped_bit_names_the_object_and_stops_the_partition(world: World) -> None:
    log, blobs, names = await archived(world)
    damage(blobs, names[1])
    with pytest.raises(ArchiveDamaged, match=f"{names[1]}: it was changed") as raised:
        await read_all(log, TOPIC, PARTITION)
    assert "copy it back" in raised.value.fix
    reader = JournalReader(log, SEATS, {PARTITION: START})
    await reader.open()
    async with asyncio.timeout(60):
        while not reader.stopped:
            with contextlib.suppress(Divergence):
                await reader.read(10)
    await reader.close()
    assert "it was changed" in str(reader.stopped[PARTITION])
    assert reader.positions[PARTITION].offset == 3  # what is before it was read


async def test_a_missing_segment_is_named_by_what_it_had(world: World) -> None:
    log, blobs, names = await archived(world)
    del blobs.bodies[names[1]]
    with pytest.raises(ArchiveDamaged, match=r"lacks the segment with the records \[3, 6\)"):
        await read_all(log, TOPIC, PARTITION)
    with pytest.raises(ArchiveDamaged, match=r"lacks the segment with the records \[3, 6\)"):
        await moved(over(world.log, blobs))
    del blobs.bodies[names[-1]]
    with pytest.raises(ArchiveDamaged, match="lacks"):
        await read_all(over(world.log, blobs), TOPIC, PARTITION)


async def other_installation(monkeypatch: pytest.MonkeyPatch) -> tuple[World, MemoryBlobs]:
    other = await World().create()
    await decide(other, COUNT + 4)
    _, blobs, _ = await archived(other)
    return other, blobs


async def test_segments_of_another_installation_are_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, blobs, names = await archived(world)
    _, foreign = await other_installation(monkeypatch)
    theirs = sorted(foreign.bodies)
    del blobs.bodies[names[1]]
    blobs.bodies[theirs[1]] = foreign.bodies[theirs[1]]
    with pytest.raises(ArchiveDamaged, match=f"{theirs[1]}: it does not go on from"):
        await read_all(log, TOPIC, PARTITION)
    # All of it is of another one, and fits together: nothing of it is read.
    reader = await over(world.log, foreign).reader(TOPIC, {PARTITION: 0})
    with pytest.raises(ArchiveDamaged, match="Kafka has another record at offset"):
        await reader.poll(10, 1)
    with pytest.raises(ArchiveDamaged, match="Kafka has another record at offset"):
        await moved(over(world.log, foreign))


async def test_a_journal_that_was_replaced_is_not_archived_beside_the_former(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, foreign = await other_installation(monkeypatch)
    before = list(kept(world))
    with pytest.raises(ArchiveDamaged, match="a journal that was replaced"):
        await moved(over(world.log, foreign))
    assert kept(world) == before


async def test_a_journal_that_does_not_verify_is_not_moved(world: World) -> None:
    records, blobs = kept(world), MemoryBlobs()
    value = records[2].value.replace(b'"seats":1', b'"seats":2')
    assert value != records[2].value
    records[2] = records[2]._replace(value=value)
    with pytest.raises(NotArchived, match="hash chain"):
        await moved(over(world.log, blobs))
    assert not any(blobs.bodies)
    assert world.log.topics[TOPIC][PARTITION].start == 0


async def test_a_name_that_says_something_else_than_its_object_is_refused(world: World) -> None:
    log, blobs, names = await archived(world)
    lines = gzip.decompress(blobs.bodies[names[0]])
    assert b'"position":[3,' in lines.splitlines()[-1]
    renamed = names[0].replace(f"-{3:015}-", f"-{4:015}-")
    blobs.bodies[renamed] = blobs.bodies.pop(names[0])
    with pytest.raises(ArchiveDamaged, match="other records than its name says"):
        await read_all(log, TOPIC, PARTITION)


async def test_positions_beyond_the_end_are_refused_as_before(world: World) -> None:
    log, _, _ = await archived(world)
    reader = await log.reader(TOPIC, {PARTITION: 1_000})
    with pytest.raises(OutOfRange):
        await reader.poll(10, 1)
    await reader.close()
    assert await log.ends(TOPIC, range(PARTITIONS))
