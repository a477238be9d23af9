"""Metrics of an owner's decisions, and a log line for each that a request led to."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from schemas import errors
from schemas.envelope import Rejected, Repeated
from schemas.units import Ms
from tunery.runtime.journal.decision import Decided
from tunery.runtime.telemetry.logs import log_event, subject_of
from tunery.runtime.telemetry.metrics import (
    COMMAND_LAG_SECONDS,
    DECISION_SECONDS,
    DECISIONS,
    REJECTIONS,
    STAND_DOWNS,
)
from tunery.runtime.telemetry.traces import note_span
from tunery.runtime.telemetry.trail import Trail, trail_context

LOG: Final = logging.getLogger("tunery.journal")


def log_decision(stream: str, partition: int, offset: int, decided: Decided[Any]) -> None:
    """Name the events of a settled entry, where a client's request led to it; no other contents.

    Its span lasts from the command's arrival at Kafka to the acknowledgement of the decision.
    """
    entry, events = decided.entry, decided.events
    trail = Trail(entry.correlation, entry.traceparent)
    if trail.request_id is None:
        return
    subject = next(filter(None, map(subject_of, events)), {})
    refused = next((event.code for event in events if isinstance(event, Rejected)), None)
    note_span(
        trail,
        f"decide {stream}",
        "consumer",
        entry.at,
        refused,
        partition=partition,
        offset=offset,
        tenant=entry.tenant,
        **subject,
    )
    with trail_context(trail):
        log_event(
            LOG,
            logging.INFO,
            "decision.settled",
            stream=stream,
            partition=partition,
            offset=offset,
            events=", ".join(type(event).__name__ for event in events),
            code=refused,
            tenant=entry.tenant,
            **subject,
        )


class DecisionMeter:
    """Counts and times the decisions of one stream. Nothing is ever decided from it.

    What alerts watch begins at 0: Prometheus sees no growth in a series that begins at 1.
    """

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._seconds = DECISION_SECONDS.labels(stream)
        self._lag = COMMAND_LAG_SECONDS.labels(stream)
        self._accepted = DECISIONS.labels(stream, "accepted")
        for code in (errors.INTERNAL, errors.TOO_LARGE):
            REJECTIONS.labels(stream, code)
        STAND_DOWNS.labels(stream)

    @contextmanager
    def measure(self, lag_ms: Ms) -> Iterator[None]:
        """Time one decision; the command has waited for so long."""
        self._lag.observe(max(0, lag_ms) / 1_000)
        begun = time.perf_counter()
        yield
        self._seconds.observe(time.perf_counter() - begun)

    def count(self, events: Sequence[Any]) -> None:
        """Count a decision that was read back, by what it was."""
        match events:
            case (Rejected(code=code), *_):
                DECISIONS.labels(self._stream, "rejected").inc()
                REJECTIONS.labels(self._stream, code).inc()
            case (Repeated(), *_):
                DECISIONS.labels(self._stream, "repeated").inc()
            case _:
                self._accepted.inc()
