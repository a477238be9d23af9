"""Size of a job in recorded journals, and in journals of simulated jobs."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from bench import footprint
from schemas.streams import Stream
from schemas.topics import JOB, POOL
from simulator.control_plane.journals import TopicPartition
from tests.histories.replaying import FOLDER
from tunery.runtime.bus.abstract import Record
from tunery.runtime.tools.archive import ArchiveReader

HISTORIES = {JOB: "job.a_job_that_succeeds", POOL: "pool.drained_and_succeeded"}


def recorded(stream: Stream) -> dict[TopicPartition, list[Record]]:
    """A recorded history of the stream, beside a record of another one."""
    with (FOLDER / f"{HISTORIES[stream]}.jsonl").open("rb") as file:
        records = list(ArchiveReader(file).records())
    other = next(name for name in HISTORIES if name != stream)
    return {
        (stream.journal.name, records[0].partition): records,
        (other.journal.name, 0): records[:1],
    }


@pytest.mark.parametrize(("stream", "kind"), [(JOB, "WorkDescribed"), (POOL, "WorkKept")])
def test_descriptions_are_a_part_of_the_bytes_of_a_journal(stream: Stream, kind: str) -> None:
    records = recorded(stream)
    own = next(iter(records.values()))
    described = footprint.bytes_of_descriptions(records, stream)
    with_descriptions = [record for record in own if f'"{kind}.'.encode() in record.value]
    assert footprint.bytes_of(records, stream) == sum(len(record.value) for record in own)
    assert len(with_descriptions) == 2
    assert 0 < described < sum(len(record.value) for record in with_descriptions)


#: what a job of this size of world may cost at most; what costs more has to say so here
COSTS_MAX = {
    "journal_records_per_job": 56,
    "commands_per_job": 51,
    "flushed_records_per_job": 107,
    "rows_per_job": 120,
    "journal_kb": 42,
    "row_kb": 28.5,
}


@pytest.mark.long
def test_a_job_costs_no_more_than_agreed_and_the_next_one_no_more_than_the_first() -> None:
    """Over several worlds: in one of them faults may fall on its last jobs."""
    worlds = [footprint.measure(18, seed) for seed in range(1, 7)]
    costs = {name: mean(world[name] for world in worlds) for name in worlds[0]}
    assert {name: costs[name] for name, most in COSTS_MAX.items() if costs[name] > most} == {}
    assert costs["journal_growth"] <= 1.1
    assert costs["row_growth"] <= 1.1


# --- the page of capacity, which multiplies what one job costs ------------------------------------

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "how-to" / "capacity.md"
A_DAY = (50, 500, 5_000)
DAYS = 365


def figures(name: str) -> dict[str, Any]:
    recorded = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())
    measured: dict[str, Any] = recorded["figures"]
    return measured


def rows() -> dict[str, tuple[float, ...]]:
    """Figures for a year, by the first words of a row."""
    footprint, core, rebuild = map(figures, ("footprint", "core", "rebuild"))
    records, jobs = footprint["journal_records_per_job"], [day * DAYS for day in A_DAY]
    read_per_s = rebuild["records"] / rebuild["seconds"]["without PostgreSQL: built"]
    journal_gb = [each * footprint["journal_kb"] / 1e6 for each in jobs]
    return {
        "jobs in a year": tuple(jobs),
        "records of journals in a year, millions": tuple(each * records / 1e6 for each in jobs),
        "journals in a year, GB on each replica": tuple(journal_gb),
        "rows of PostgreSQL in a year, GB before indexes": tuple(
            each * footprint["row_kb"] / 1e6 for each in jobs
        ),
        "fsyncs a second of one broker, if all jobs come in eight hours": tuple(
            day * footprint["flushed_records_per_job"] / 28_800 for day in A_DAY
        ),
        "ended jobs in the memory of schedulers after a year, GB": tuple(
            each * core["owner_rss_mb"] / 100_000 / 1e3 for each in jobs
        ),
        "views made anew after a year, minutes": tuple(
            each * records / read_per_s / 60 for each in jobs
        ),
        "GPUs, if a job takes one for an hour and they are busy for 80 %": tuple(
            day / 24 / 0.8 for day in A_DAY
        ),
    }


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def test_the_table_follows_from_the_recorded_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for words, values in rows().items():
        assert f"| {words} | {' | '.join(map(shown, values))} |" in text, words
