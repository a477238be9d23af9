"""The journal that the bench reads is one that the real decider wrote, and nothing was refused."""

from collections import Counter
from typing import Any

from bench.log import jobs
from schemas.envelope import Rejected, Repeated
from schemas.job import JobEnded
from services.scheduler.app import JOBS
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.codec import codec_of
from tunery.runtime.journal.reader import START, read_record

JOBS_MADE = 20


def test_every_job_ends_as_meant_in_ten_commands_on_average() -> None:
    codec, position = codec_of(JOBS.stream), START
    events: list[Any] = []
    values = list(jobs.journal(jobs.commands(JOBS_MADE)))
    for offset, value in enumerate(values):
        record = Record(jobs.PARTITION, offset, jobs.BEGIN_MS, b"", value)
        judged = read_record(JOBS.stream, codec, position, record)
        position = judged.position
        events += judged.accepted.events if judged.accepted else ()
    ended = Counter(event.outcome for event in events if isinstance(event, JobEnded))
    assert ended == {"succeeded": 12, "cancelled": 8}
    assert not any(isinstance(event, Rejected | Repeated) for event in events)
    assert len(values) == 1 + jobs.TENANTS + JOBS_MADE * jobs.COMMANDS_OF_JOB
