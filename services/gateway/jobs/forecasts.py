"""Expected starts of waiting jobs, computed from rows that are cached for a moment."""

import asyncio
from collections.abc import Mapping
from typing import Final

from schemas.units import Ms
from services.gateway.jobs.queue_forecast import (
    Outlook,
    RunningJob,
    WaitingJob,
    left_ms,
    starts_in_ms,
)
from services.gateway.jobs.tables import JOBS, NODES, JobRow
from services.gateway.ports import Views
from tunery.runtime.clock import Clock

KEPT_MS: Final[Ms] = 2_000
JOBS_MAX: Final = 2_000  # jobs of one phase; for a longer queue there is no useful forecast
NODES_MAX: Final = 1_000
ON_MACHINES: Final = ("provisioning", "running", "checkpointing", "evaluating")
LANES: Final = ("premium", "standard", "free")  # highest first
NEW: Final = ""  # a job that would be submitted now


class Forecasts:
    def __init__(self, views: Views, clock: Clock) -> None:
        self._views, self._clock = views, clock
        self._reading = asyncio.Lock()
        self._read_at: Ms | None = None
        self._slots = 0
        self._running: list[RunningJob] = []
        self._waiting: list[WaitingJob] = []

    async def outlook_of(self, job_id: str) -> Outlook:
        """Position and expected start of a queued job; None if they are not known."""
        starts = await self._starts()
        order = (waiting.job_id for waiting in self._waiting)
        position = next((n for n, name in enumerate(order, start=1) if name == job_id), None)
        return Outlook(position=position, starts_at=starts.get(job_id))

    async def start_of_new(self, slots: int) -> Ms | None:
        """Expected start of a job that would be submitted now."""
        return (await self._starts(WaitingJob(NEW, slots, 0))).get(NEW)

    async def _starts(self, *more: WaitingJob) -> Mapping[str, Ms]:
        now = self._clock.now_ms()
        async with self._reading:  # concurrent requests wait for the same read
            if self._read_at is None or now - self._read_at > KEPT_MS:
                await self._read(now)
                self._read_at = now
        waits = starts_in_ms(self._slots, self._running, [*self._waiting, *more])
        return {job_id: now + wait_ms for job_id, wait_ms in waits.items()}

    async def _read(self, now: Ms) -> None:
        nodes = await self._views.page(NODES, {"state": "alive"}, limit=NODES_MAX)
        self._slots = sum(node.slots for node in nodes if node.status == "up")
        self._running = [
            RunningJob(row.spec.slots, left_ms(_expected_ms(row), now - _began_at(row, now)))
            for phase in ON_MACHINES
            for row in await self._views.page(JOBS, {"phase": phase}, limit=JOBS_MAX)
        ]
        queued = await self._views.page(
            JOBS, {"phase": "queued", "wanted": "run"}, limit=JOBS_MAX, descending=False
        )
        ordered = sorted(queued, key=_queue_order)
        self._waiting = [WaitingJob(row.id, row.spec.slots, _expected_ms(row)) for row in ordered]


def _queue_order(row: JobRow) -> tuple[int, bool, int]:
    """Waiting jobs in the pool's order; those not yet in its queue are last in their lane."""
    return LANES.index(row.lane), row.queue_sequence is None, row.queue_sequence or 0


def _expected_ms(row: JobRow) -> Ms:
    """Expected duration of all the job's work on its slots; 0 while it has no hold."""
    if row.hold is None:
        return 0
    estimate = row.hold.estimate
    return (estimate.train_gpu_ms + estimate.eval_gpu_ms) // row.spec.slots


def _began_at(row: JobRow, now: Ms) -> Ms:
    return now if row.started_at is None else row.started_at
