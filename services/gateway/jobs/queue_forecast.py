"""When a waiting job will begin: the queue, played through in its order. An estimate, no promise.

Expected durations are those of the estimates that the holds were taken for. Slots are counted as
one room: which node they are on, and who will be preempted, is the scheduler's to decide.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.units import Ms

LEFT_MS_MIN: Final[Ms] = 60_000  # of a job that runs longer than was expected


@dataclass(frozen=True)
class Outlook:
    """What a waiting job can expect: its position in the queue from 1, and when it will begin."""

    position: int | None
    starts_at: Ms | None


@dataclass(frozen=True)
class RunningJob:
    slots: int
    left_ms: Ms


@dataclass(frozen=True)
class WaitingJob:
    job_id: str
    slots: int
    needs_ms: Ms


def left_ms(expected_ms: Ms, elapsed_ms: Ms) -> Ms:
    return max(LEFT_MS_MIN, expected_ms - elapsed_ms)


def starts_in_ms(
    slots: int, running: Sequence[RunningJob], waiting: Sequence[WaitingJob]
) -> Mapping[str, Ms]:
    """Milliseconds until each job of the queue begins; a job that never fits is left out."""
    free = max(0, slots - sum(running_job.slots for running_job in running))
    ends = [(running_job.left_ms, running_job.slots) for running_job in running]
    heapq.heapify(ends)
    now = 0
    starts_ms: dict[str, Ms] = {}
    for job in waiting:
        if job.slots > slots:
            continue
        while free < job.slots and ends:
            now, freed = heapq.heappop(ends)
            free += freed
        if free < job.slots:
            return starts_ms  # what runs now holds more than the live nodes have
        starts_ms[job.job_id] = now
        free -= job.slots
        heapq.heappush(ends, (now + job.needs_ms, job.slots))
    return starts_ms
