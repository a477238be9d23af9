"""Attempts of a job on one axis of time, from its messages: waits, kills, resumes, checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

ENDINGS: Final[Mapping[str, str]] = {
    "lost": "lost its machine",
    "preempted": "stopped before its end",
    "failed": "failed",
    "not_started": "ended before it started",
}


@dataclass
class Attempt:
    """One attempt; times in epoch seconds."""

    number: int
    queued: int
    started: int | None = None
    ended: int | None = None
    loaded_step: int = 0  # step of the checkpoint that it began with
    is_evaluation: bool = False  # it compares the models
    ending: str | None = None  # None: it runs, or has succeeded
    checkpoints: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Timeline:
    """Attempts on an axis from `begin` to `end`, in epoch seconds."""

    attempts: Sequence[Attempt]
    begin: int
    end: int

    def position(self, at: int) -> str:
        """Return the position of a moment on the axis, for SVG."""
        return f"{100 * (at - self.begin) / max(1, self.end - self.begin):.2f}%"

    def width(self, begin: int, end: int) -> str:
        """Return the width of a time, for SVG; at least as wide as can be seen."""
        return f"{max(0.4, 100 * (end - begin) / max(1, self.end - self.begin)):.2f}%"


def timeline(messages: Sequence[Mapping[str, Any]], now: int) -> Timeline | None:
    """Return the attempts of a job by its messages, oldest first; None: it has none yet.

    now: end of the axis while an attempt runs, in epoch seconds
    """
    attempts: list[Attempt] = []
    for message in messages:
        _take(attempts, message["created_at"], message["details"], message["message"])
    if not attempts:
        return None
    for attempt, following in pairwise(attempts):
        attempt.ended = attempt.ended or following.queued
    last = attempts[-1]
    ends = [attempt.ended for attempt in attempts if attempt.ended is not None]
    end = max(ends) if last.ended is not None else now
    return Timeline(attempts, attempts[0].queued, max(end, attempts[0].queued + 1))


def _take(attempts: list[Attempt], at: int, details: Mapping[str, Any], text: str) -> None:
    """Apply a message. Its details show its kind; the end of a job has only a text."""
    open_one = attempts[-1] if attempts else None
    match dict(details):
        case {"attempt": int(number), "outcome": str(outcome)}:
            for attempt in attempts:
                if attempt.number == number:
                    attempt.ended, attempt.ending = at, ENDINGS.get(outcome, outcome)
        case {"attempt": int(number), "loaded_step": int(step)}:
            if open_one is None or open_one.number != number:
                attempts.append(open_one := Attempt(number, at))
            open_one.started, open_one.loaded_step = at, step
            open_one.is_evaluation = text.startswith("Evaluation")
        case {"attempt": int(number), **more} if not more:  # a warning of an attempt has more
            attempts.append(Attempt(number, at))
        case {"step": int()} if open_one is not None and open_one.started is not None:
            open_one.checkpoints.append(at)
        case _ if open_one is not None and open_one.ended is None and _has_ended(text):
            open_one.ended = at


def _has_ended(text: str) -> bool:
    endings = ("The job has successfully completed", "The job was cancelled", "The job failed")
    return text.startswith(endings)
