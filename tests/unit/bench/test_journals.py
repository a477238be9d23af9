"""The bytes of a recorded job's journals: all are counted, and the descriptions among them."""

import pytest

from bench import journals
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
    described = journals.bytes_of_descriptions(records, stream)
    with_descriptions = [record for record in own if f'"{kind}.'.encode() in record.value]
    assert journals.bytes_of(records, stream) == sum(len(record.value) for record in own)
    assert len(with_descriptions) == 2
    assert 0 < described < sum(len(record.value) for record in with_descriptions)
