"""Events of a job as the API lists them: identifiers that sort, and messages.

The order of messages is the one scripts look for: created, validating, files validated, started,
steps, new model created, completed.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.ids import EVENT
from schemas.units import Ms

# Two events of one record: which one comes first. Also the last digits of an event's id.
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
)
STEP_MARK: Final = "f"  # a step's id; within one millisecond steps come after the journal's events
TIME_DIGITS: Final = 11  # hexadecimal, milliseconds: until the year 2527
SEQ_DIGITS: Final = 11
EVENT_ID: Final = re.compile(rf"^{EVENT}[0-9a-f]{{24}}$")


def journal_event_id(at: Ms, seq: int, rank: str) -> str:
    """Sorts by time, then by the order in the journal. Unique within one job."""
    return f"{EVENT}{at:0{TIME_DIGITS}x}0{seq:0{SEQ_DIGITS}x}{RANKS.index(rank):x}"


def history_id(at: Ms, seq: int, field: str) -> str:
    """Of one changed field of a job. Sorts like the events; one record sets a field once."""
    return f"{at:0{TIME_DIGITS}x}{seq:0{SEQ_DIGITS}x}{field}"


def step_event_id(at: Ms, attempt: int, step: int) -> str:
    return f"{EVENT}{at:0{TIME_DIGITS}x}{STEP_MARK}{attempt:03x}{step:08x}0"


def line_id(at: Ms, partition: int, offset: int) -> str:
    return f"{EVENT}{at:0{TIME_DIGITS}x}{partition:01x}{offset:012x}"


def step_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `steps` as a metrics event."""
    loss = finite(row["loss"])
    data = {
        "step": row["step"],
        "total_steps": row["total_steps"],
        "train_loss": loss,
        "train_mean_token_accuracy": finite(row["accuracy"]),
    }
    if (valid := finite(row["valid_loss"])) is not None:
        data["valid_loss"] = valid
    text = f"Step {row['step']}/{row['total_steps']}: training loss={shown(loss)}"
    return {
        "id": row["id"],
        "object": "fine_tuning.job.event",
        "created_at": row["at"] // 1000,
        "level": "info",
        "message": text if valid is None else f"{text}, validation loss={shown(valid)}",
        "type": "metrics",
        "data": data,
    }


def metrics_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `steps`, whole. A loss that is not finite is null."""
    return {
        "id": row["id"],
        "object": "fine_tuning.job.metrics",
        "created_at": row["at"] // 1000,
        "attempt": row["attempt"],
        "step": row["step"],
        "total_steps": row["total_steps"],
        "train_loss": finite(row["loss"]),
        "train_mean_token_accuracy": finite(row["accuracy"]),
        "valid_loss": finite(row["valid_loss"]),
        "learning_rate": finite(row["learning_rate"]),
        "tokens": row["tokens"],
        "elapsed_ms": row["elapsed_ms"],
    }


def line_object(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "object": "fine_tuning.job.log",
        "created_at": row["at"] // 1000,
        "attempt": row["attempt"],
        "level": row["level"],
        "message": row["message"],
    }


def message_event(row: Mapping[str, Any], opened: str | None) -> dict[str, Any]:
    """A row of `job_events`; `opened` is its sealed part, which may quote the tenant's data."""
    return {
        "id": row["id"],
        "object": "fine_tuning.job.event",
        "created_at": row["at"] // 1000,
        "level": row["level"],
        "message": row["message"] if opened is None else f"{row['message']} {opened}",
        "type": row["kind"],
        "data": row["data"] or {},
    }


def finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None


def shown(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.2f}"
