"""Footprint of one job: records, commands and rows that it leaves for ever, and their bytes.

    python -m bench.footprint [--json] [--jobs 100]

A simulation with failing machines runs the jobs through the production deciders, reactions and
projections on virtual time, once with a third of the jobs and once with all of them. Growth is what
each further job costs as a multiple of what the first ones cost: 1 where the cost is flat.
Records are counted byte for byte, with their envelopes. Rows are those of the API and of the
ledger, as JSON, before indexes. Object storage and telemetry are not in it: a checkpoint costs what
its adapter weighs, and telemetry is kept for a week.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from bench.measures import print_figures
from schemas.streams import Stream
from schemas.topics import JOB, POOL, STREAMS, TOPICS
from services.billing.project import project_ledger
from services.gateway.views.projections.journals import project
from simulator.control_plane.journals import TopicPartition, live
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.codec import codec_of
from tunery.runtime.journal.reader import START, Accepted, read_record
from tunery.runtime.verbs import Change, Upsert

JOBS: Final = 99
DESCRIPTIONS: Final = ("WorkDescribed.", "WorkKept.")
#: topics whose records one broker brings to its disk one by one
FLUSHED: Final = frozenset(topic.name for topic in TOPICS if topic.durable)
Records = Mapping[TopicPartition, Sequence[Record]]


def bytes_of(records: Records, stream: Stream) -> int:
    """All records of a journal."""
    topic = stream.journal.name
    return sum(
        len(record.value) for (name, _), kept in records.items() if name == topic for record in kept
    )


def bytes_of_descriptions(records: Records, stream: Stream) -> int:
    """The events of a journal that describe work: base model, data and hyper-parameters."""
    events = (event for each in accepted(records, stream) for event in each.entry.events)
    return sum(
        len(bytes(event))
        for event in events
        if msgspec.json.decode(event)["type"].startswith(DESCRIPTIONS)
    )


def accepted(records: Records, stream: Stream) -> Iterator[Accepted]:
    """The entries of a journal that count."""
    codec = codec_of(stream)
    for (topic, _), kept in records.items():
        position = START
        for record in kept if topic == stream.journal.name else ():
            judged = read_record(stream, codec, position, record)
            position = judged.position
            if judged.accepted is not None:
                yield judged.accepted


def rows_of(records: Records) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows of the API and of the ledger, by table and key, as their last change leaves them."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for stream in STREAMS.values():
        for each in accepted(records, stream):
            header = each.header
            for event in each.events:
                changes: list[Change] = list(project(header, event))
                if stream is POOL:
                    changes += project_ledger(header, event)
                for change in changes:
                    if isinstance(change, Upsert):
                        key = (change.table, msgspec.json.encode(change.key).decode())
                        rows.setdefault(key, {}).update(change.values)
    return rows


def totals(jobs: int, seed: int = 1) -> dict[str, int]:
    """Counts for `jobs` jobs, without those of the installation itself."""
    life = live(jobs, {}, seed)
    records, rows = life.records, rows_of(life.records)
    journals = {stream.journal.name for stream in STREAMS.values()}
    written = dict.fromkeys(("journal_records", "commands", "flushed_records"), 0)
    for (topic, _), kept in records.items():
        written["journal_records" if topic in journals else "commands"] += len(kept)
        written["flushed_records"] += len(kept) if topic in FLUSHED else 0
    job, pool = (bytes_of(records, stream) for stream in (JOB, POOL))
    described = sum(bytes_of_descriptions(records, stream) for stream in (JOB, POOL))
    return {
        "leases": life.leases,
        **written,
        "rows": len(rows),
        "job_bytes": job,
        "pool_bytes": pool,
        "journal_bytes": job + pool,
        "description_bytes": described,
        "row_bytes": sum(
            len(key) + len(msgspec.json.encode(values, enc_hook=str))
            for (_, key), values in rows.items()
        ),
    }


def measure(jobs: int, seed: int = 1) -> dict[str, float]:
    """Figures of one job on average, and how much more a further one costs."""
    first = jobs // 3
    few, all_of_them = totals(first, seed), totals(jobs, seed)
    figures: dict[str, float] = {"jobs": jobs}
    for name, total in all_of_them.items():
        if name.endswith("_bytes"):
            figures[f"{name.removesuffix('_bytes')}_kb"] = round(total / jobs / 1_000, 1)
        else:
            figures[f"{name}_per_job"] = round(total / jobs, 1)
    for name in ("journal_bytes", "row_bytes"):
        further = (all_of_them[name] - few[name]) / (jobs - first)
        figures[f"{name.removesuffix('_bytes')}_growth"] = round(further / (few[name] / first), 2)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.footprint")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--jobs", type=int, default=JOBS)
    arguments = parser.parse_args()
    print_figures(measure(arguments.jobs), as_json=arguments.as_json)


if __name__ == "__main__":
    main()
