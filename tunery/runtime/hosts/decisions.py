"""What an owner says of its decisions: one log line for each that follows from a request."""

import logging
from typing import Any, Final

from schemas.envelope import Rejected
from tunery.runtime.journal.decision import Decided
from tunery.runtime.telemetry.logs import log_event, subject_of
from tunery.runtime.telemetry.trail import Trail, trail_context

LOG: Final = logging.getLogger("tunery.journal")


def log_decision(stream: str, partition: int, offset: int, decided: Decided[Any]) -> None:
    """Name the events of a settled entry, where a client's request led to it; no other contents."""
    entry, events = decided.entry, decided.events
    trail = Trail(entry.correlation, entry.traceparent)
    if trail.request_id is None:
        return
    subject = next(filter(None, map(subject_of, events)), {})
    refused = next((event.code for event in events if isinstance(event, Rejected)), None)
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
