"""Identifiers of a job's events, which sort by time.

Messages are in the order that scripts for OpenAI's API expect: created, validating, files
validated, started, steps, new model created, completed.
"""

import re
from typing import Final

from schemas.envelope import Header
from schemas.ids import EVENT
from schemas.units import Ms

# Rank of an event among those of one record; the last digits of its id.
RANKS: Final = (
    "created",
    "validating",
    "held",
    "queued",
    "started",
    "checkpoint",
    "wanted",
    "attempt_ended",
    "verdict",
    "model",
    "ended",
    "skipped",
    "conditions",
    "ignored",
    "same_file",
    "anomaly",
)
STEP_MARK: Final = (
    "f"  # marks the id of a step: within a millisecond, steps sort after events of the journal
)
TIME_DIGITS: Final = 11  # hexadecimal, milliseconds: until the year 2527
SEQ_DIGITS: Final = 11
EVENT_ID: Final = re.compile(rf"^{EVENT}[0-9a-f]{{24}}$")


def journal_event_id(at: Ms, seq: int, rank: str) -> str:
    """Id of a journal event: sorts by time, then by the order in the journal; unique in a job."""
    return f"{EVENT}{at:0{TIME_DIGITS}x}0{seq:0{SEQ_DIGITS}x}{RANKS.index(rank):x}"


def history_id(at: Ms, seq: int, field: str) -> str:
    """Id of one change of a job's field; sorts like the ids of events."""
    return f"{at:0{TIME_DIGITS}x}{seq:0{SEQ_DIGITS}x}{field}"


def step_event_id(at: Ms, attempt: int, step: int) -> str:
    return f"{EVENT}{at:0{TIME_DIGITS}x}{STEP_MARK}{attempt:03x}{step:08x}0"


def line_id(at: Ms, partition: int, offset: int) -> str:
    return f"{EVENT}{at:0{TIME_DIGITS}x}{partition:01x}{offset:012x}"


def usage_id(header: Header, name: str) -> str:
    """Id of a line of use; sorts like the journal. `name`: which of the lines of its record."""
    return f"{header.incarnation:012d}-{header.partition}-{header.offset:012d}/{name}"
