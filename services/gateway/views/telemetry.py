"""Reads the telemetry topic into the tables of steps and log lines."""

from collections.abc import Mapping
from typing import Final

import msgspec

from schemas.telemetry import LogLine, Progress, Step, Telemetry
from schemas.topics import TELEMETRY
from services.gateway.views.event_ids import line_id, step_event_id
from services.gateway.views.ports import Views
from services.gateway.views.tables.jobs import LINES, STEPS, LogLineRow, StepRow
from services.gateway.views.telemetry_senders import TelemetrySenders
from tunery.platform.ports import Runtime
from tunery.runtime.bus.abstract import Record
from tunery.runtime.hosts.topic_reader import TopicReader, TopicRows, decoded
from tunery.runtime.verbs import Upsert

NAME: Final = "telemetry"
LINE_CHARACTERS_MAX: Final = 2_000
# what an evaluation does, by the name that its process gives it
STAGES: Final[Mapping[str, str]] = {
    f"{kind}_{side}": f"{words} {whom}"
    for kind, words in (
        ("items", "general questions to the"),
        ("holdout", "validation rows of the"),
        ("measured", "own rows to the"),
        ("answers", "answers of the"),
    )
    for side, whom in (("base", "base model"), ("adapter", "adapter"))
}
VERSION: Final = 7  # 7: variants; 6: rewards of preferred answers
_DECODER: Final[msgspec.json.Decoder[Telemetry]] = msgspec.json.Decoder(Telemetry)


def telemetry_reader(runtime: Runtime, views: Views) -> TopicReader:
    """The host that reads telemetry. What cannot be decoded, or is not a node's, is skipped."""
    senders = TelemetrySenders(runtime.keys, views)
    return TopicReader(runtime, TELEMETRY_ROWS, senders.counted)


def changes_of(record: Record) -> tuple[Upsert, ...]:
    """Rows of one record. A step that a resumed attempt repeats replaces the earlier row."""
    message = decoded(record, _DECODER, "telemetry.record_skipped")
    match message:
        case None:
            return ()
        case LogLine():
            return (_line(record, message, message.level, message.text),)
        case Progress():
            stage = STAGES.get(message.stage, message.stage)
            text = f"evaluation: {stage}, {message.done_ppm / 10_000:.0f} %"
            return (_line(record, message, "info", text),)
        case Step():
            return (_step(record, message),)


def _line(record: Record, message: LogLine | Progress, level: str, text: str) -> Upsert:
    return LINES.insert(
        LogLineRow.of(
            message,
            id=line_id(record.timestamp, record.partition, record.offset),
            at=record.timestamp,
            level=level,
            message=text.replace("\0", "")[:LINE_CHARACTERS_MAX],
        )
    )


def _step(record: Record, step: Step) -> Upsert:
    return STEPS.insert(
        StepRow.of(
            step,
            id=step_event_id(record.timestamp, step.attempt, step.step),
            at=record.timestamp,
        )
    )


def _job(change: Upsert) -> str:
    """The notice to followers of a job."""
    return f"{change.key['tenant']}/{change.key['job_id']}"


TELEMETRY_ROWS: Final = TopicRows(NAME, VERSION, TELEMETRY, (STEPS, LINES), changes_of, _job)
