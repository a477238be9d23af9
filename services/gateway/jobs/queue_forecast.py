"""Forecasts when waiting jobs will begin, by simulating the queue in its order.

Expected durations come from the estimates of the holds. Slots are counted over all nodes; on which
node a job will run, and which jobs will be preempted, is not simulated.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.units import Ms

LEFT_MS_MIN: Final[Ms] = 60_000  # assumed rest of a job that has run longer than expected


@dataclass(frozen=True)
class Outlook:
    """A waiting job's position in the queue, from 1, and its expected start."""

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
    """Milliseconds until each waiting job begins; jobs that can never fit are left out."""
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
            return starts_ms  # running jobs hold more slots than the live nodes have
        starts_ms[job.job_id] = now
        free -= job.slots
        heapq.heappush(ends, (now + job.needs_ms, job.slots))
    return starts_ms
