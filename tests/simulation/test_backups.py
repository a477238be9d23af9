"""Cuts at every moment of simulated lives: each restores to a world that fits together.

Machines and services fail meanwhile. A cut goes through journals whose ends were read one after the
other, over some seconds, as several readers of a busy log do.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Final

import msgspec
import pytest

from schemas.streams import PARTITIONS
from schemas.topics import STREAMS, TOPICS
from simulator.control_plane.journals import Life, live
from tests.unit.tunery.cli.journal.living import events, running
from tunery.cli.journal.restore import claim_restored
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.tools.cut import Mark, extended_cut, mark_of, shortened_cut
from tunery.runtime.tools.inspection import PartitionScan

pytestmark = pytest.mark.long
JOBS: Final = 8
LIVED: Final = ("account", "job", "pool")  # streams of the simulated control plane
READING_MS_MAX: Final = 8_000  # from the first end that is read to the last; a job is placed sooner
RESTORED: Final = 8  # moments at which a whole world is restored and goes on
Journals = Mapping[str, Sequence[Record]]
Cut = Mapping[str, int]


@pytest.fixture(scope="module")
def journals() -> Journals:
    """Journals of a life, by stream/partition."""
    return journals_of(live(JOBS, {}))


def journals_of(life: Life) -> Journals:
    return {
        f"{stream}/{number}": life.records.get((STREAMS[stream].journal.name, number), ())
        for stream in LIVED
        for number in range(PARTITIONS)
    }


def moments(journals: Journals) -> list[int]:
    return sorted({record.timestamp for records in journals.values() for record in records})


def ends_at(journals: Journals, at_ms: Mapping[str, int]) -> dict[str, int]:
    return {
        name: sum(record.timestamp <= at_ms[name] for record in records)
        for name, records in journals.items()
    }


def marks_of(journals: Journals) -> dict[str, list[Mark]]:
    return {
        name: [mark_of(name.split("/")[0], record) for record in records]
        for name, records in journals.items()
    }


def is_consistent(marks: Mapping[str, Sequence[Mark]], cut: Cut) -> bool:
    return all(
        mark.cause is None or mark.cause.offset < cut.get(mark.cause.name, mark.cause.offset + 1)
        for name, end in cut.items()
        for mark in marks[name][:end]
    )


def strangers(journals: Journals, cut: Cut) -> set[str]:
    """Jobs that the pool would train although the stream of jobs does not have them."""
    submitted, placed = set[str](), set[str]()
    for name, end in cut.items():
        for record in journals[name][:end]:
            submitted |= jobs_in(record.value)[0]
            placed |= jobs_in(record.value)[1]
    return placed - submitted


@cache
def jobs_in(value: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Jobs that a record submits, and jobs that it places."""
    said = msgspec.json.decode(value).get("events", ())
    submitted = (e["job_id"] for e in said if e["type"] == "JobSubmitted.v1")
    placed = (e["placement"]["job_id"] for e in said if e["type"] == "PlacementQueued.v1")
    return frozenset(submitted), frozenset(placed)


def read_slowly(journals: Journals, at_ms: int, rng: Random) -> tuple[Cut, Cut]:
    """Return ends that are read one after the other from a moment on, and all ends after that."""
    times = {name: at_ms + rng.randrange(READING_MS_MAX) for name in journals}
    all_read = dict.fromkeys(journals, at_ms + READING_MS_MAX)
    return ends_at(journals, times), ends_at(journals, all_read)


def chosen_cut(marks: Mapping[str, Sequence[Mark]], ends: Cut, limits: Cut) -> dict[str, int]:
    """Return the cut that `tunery backup` chooses."""
    causes: dict[str, int] = {}
    before = [mark for name, end in ends.items() for mark in marks[name][:end]]
    for mark in before:
        if mark.cause is not None:
            causes[mark.cause.name] = max(mark.cause.offset, causes.get(mark.cause.name, -1))
    later = {name: marks[name][end : limits[name]] for name, end in ends.items()}
    return extended_cut(ends, causes, later, max((m.timestamp for m in before), default=0))


def test_review2_p10a_every_cut_of_a_life_fits_together(journals: Journals) -> None:
    """Without the chosen cut, journals read one after the other contradict each other."""
    rng, marks, torn, strange = Random("cuts"), marks_of(journals), 0, 0
    for at_ms in moments(journals):
        ends, limits = read_slowly(journals, at_ms, rng)
        cut = chosen_cut(marks, ends, limits)
        assert all(ends[name] <= cut[name] <= limits[name] for name in ends)
        assert is_consistent(marks, cut)
        assert not strangers(journals, cut)
        torn += not is_consistent(marks, ends)
        strange += len(strangers(journals, ends))
    print(f"{len(moments(journals))} moments: {torn} torn, {strange} jobs that nobody submitted")
    assert torn > 10
    assert strange > 0


def test_every_moment_of_a_life_can_be_cut_at_without_a_loss(journals: Journals) -> None:
    ends = {name: len(each) for name, each in journals.items()}
    all_marks = [mark for each in marks_of(journals).values() for mark in each]
    for at_ms in moments(journals):
        cut = shortened_cut(ends, at_ms, lambda: all_marks)
        assert cut == ends_at(journals, dict.fromkeys(journals, at_ms))


async def test_cuts_restore_to_worlds_that_go_on(journals: Journals) -> None:
    """All owners and reactions run over the restored journals until nothing is left to do."""
    rng, times, marks = Random("worlds"), moments(journals), marks_of(journals)
    for at_ms in rng.sample(times, RESTORED):
        cut = chosen_cut(marks, *read_slowly(journals, at_ms, rng))
        log = MemoryLog()
        await log.create(TOPICS, PARTITIONS)
        for name, end in cut.items():
            stream, number = name.split("/")
            topic = log.topics[STREAMS[stream].journal.name]
            topic[int(number)].records.extend(journals[name][:end])
            scan = PartitionScan(STREAMS[stream], int(number))
            scan.take(journals[name][:end])
            assert scan.tally.bad is None
            await claim_restored(log, STREAMS[stream], scan.tally)
        async with asyncio.timeout(60), running(log):
            pass
        submitted = {e["job_id"] for e in events(log, "job") if e["type"] == "JobSubmitted.v1"}
        placed = {
            event["placement"]["job_id"]
            for event in events(log, "pool")
            if event["type"] == "PlacementQueued.v1"
        }
        assert placed <= submitted
        ended = [e["job_id"] for e in events(log, "job") if e["type"] == "JobEnded.v1"]
        assert len(ended) == len(set(ended))
