"""Measures how much one job adds to the journals.

    python -m bench.journals [--json] [--jobs 100]

A simulation with failing machines runs the jobs through the production deciders on virtual time.
Records are counted byte for byte, with their envelopes; the descriptions of the work are counted as
the JSON of their events.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from bench.measures import print_figures
from schemas.envelope import Entry
from schemas.streams import Stream
from schemas.topics import JOB, POOL
from simulator.control_plane.journals import TopicPartition, live
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.codec import decode_record

JOBS: Final = 100
DESCRIPTIONS: Final = ("WorkDescribed.", "WorkKept.")


def bytes_of(records: Mapping[TopicPartition, Sequence[Record]], stream: Stream) -> int:
    """All records of a journal."""
    return sum(len(record.value) for record in _journal(records, stream))


def bytes_of_descriptions(
    records: Mapping[TopicPartition, Sequence[Record]], stream: Stream
) -> int:
    """The events of a journal that describe work: base model, data and hyper-parameters."""
    entries = [decode_record(record.value) for record in _journal(records, stream)]
    events = [event for entry in entries if isinstance(entry, Entry) for event in entry.events]
    return sum(
        len(bytes(event))
        for event in events
        if msgspec.json.decode(event)["type"].startswith(DESCRIPTIONS)
    )


def _journal(
    records: Mapping[TopicPartition, Sequence[Record]], stream: Stream
) -> Sequence[Record]:
    topic = stream.journal.name
    return [record for (name, _), kept in records.items() if name == topic for record in kept]


def measure(jobs: int, seed: int = 1) -> dict[str, float]:
    """Kilobytes of each journal for one job, and its leases, on average."""
    life = live(jobs, {}, seed)
    records = life.records
    totals = {f"{stream.name}_kb": bytes_of(records, stream) for stream in (JOB, POOL)}
    totals["descriptions_kb"] = sum(
        bytes_of_descriptions(records, stream) for stream in (JOB, POOL)
    )
    totals["both_kb"] = totals["job_kb"] + totals["pool_kb"]
    figures = {name: round(total / jobs / 1_000, 1) for name, total in totals.items()}
    return {"jobs": jobs, "leases_per_job": round(life.leases / jobs, 1)} | figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.journals")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--jobs", type=int, default=JOBS)
    arguments = parser.parse_args()
    print_figures(measure(arguments.jobs), as_json=arguments.as_json)


if __name__ == "__main__":
    main()
