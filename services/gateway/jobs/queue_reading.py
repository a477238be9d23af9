"""Why jobs wait and when they are expected to start, from rows that are kept for a moment."""

import asyncio
from collections.abc import Mapping
from typing import Final

from schemas.job import Phase, Wanted
from schemas.units import Ms
from services.gateway.jobs.domain.queue_view import (
    COMING,
    Outlook,
    QueueRows,
    QueueView,
    look_out,
    look_out_full,
    look_out_later,
    outlook_of,
    view_queue,
)
from services.gateway.jobs.domain.statuses import PAUSED, RUNNING
from services.gateway.views.ports import Views
from services.gateway.views.tables.accounts import LIMITS
from services.gateway.views.tables.jobs import ATTEMPT_TIMES, JOBS, NODES, PLACEMENTS, SEATS, JobRow
from services.gateway.web.kept_readings import KeptReadings
from tunery.plan.scheduling.requests import Request
from tunery.runtime.clock import Clock

KEPT_MS: Final[Ms] = 2_000
POOLS_MAX: Final = 1_000  # whose queue is kept
ENDED_MAX: Final = 500  # the newest attempts that say how good estimates are
ROWS_MAX: Final = 20_000  # of each kind; a longer queue is explained as if it ended there
WAITING: Final = (*COMING, "provisioning", "evaluating")  # and those in which a job may wait there
# What counts against the limit of jobs at the same time: wanted to run, or not stopped yet.
COUNTED: Final[Mapping[Wanted, tuple[Phase, ...]]] = {
    "run": tuple(RUNNING),
    "paused": ("running", "checkpointing"),
}


class Queues:
    """Reads the queues of pools. Requests share one reading, and seldom wait for it."""

    def __init__(self, views: Views, clock: Clock) -> None:
        self._views, self._clock = views, clock
        self._kept = KeptReadings(self._read, clock, KEPT_MS, shown=2, names_max=POOLS_MAX)

    async def read(self, pool: str) -> tuple[QueueRows, QueueView]:
        """The queue of a pool, as it was at most 2 * KEPT_MS ago."""
        return await self._kept.get(pool)

    async def _read(self, pool: str) -> tuple[QueueRows, QueueView]:
        rows = await self._rows(pool)
        # 10,000 jobs on 1,000 nodes take a second: other requests go on meanwhile
        return rows, await asyncio.to_thread(view_queue, rows, self._clock.now_ms())

    async def outlook_of(self, row: JobRow) -> Outlook | None:
        """Why a job waits, and until when; None: it does not."""
        if row.wanted == "paused" and row.phase in PAUSED:
            return await self._outlook_of_paused(row)
        if row.wanted != "run" or row.phase not in WAITING:
            return None
        rows, view = await self.read(row.spec.pool)
        return look_out(row, rows, view, self._clock.now_ms())

    async def eval_ms_of(self, row: JobRow) -> Ms | None:
        """Return the expected duration of a job's evaluation; None: it is not being evaluated."""
        if row.phase != "evaluating":
            return None
        rows, _ = await self.read(row.spec.pool)
        placement = rows.placement(row.id)
        return None if placement is None or placement.role != "eval" else placement.p50_ms

    async def _outlook_of_paused(self, row: JobRow) -> Outlook | None:
        """Until when a paused job cannot be resumed, as its tenant has all jobs that it may have;
        None: it can be.
        """
        limits = await self._views.page(LIMITS, {"id": row.tenant}, limit=1)
        if not limits:
            return None
        limit = limits[0].limits.concurrency
        counted = [
            job
            for wanted, phases in COUNTED.items()
            for job in await self._views.page(
                JOBS, {"tenant": row.tenant, "wanted": wanted, "phase": phases}, limit=limit
            )
        ]
        if len(counted) < limit:
            return None
        rows, view = await self.read(row.spec.pool)
        return look_out_full(row.tenant, limit, rows, view, self._clock.now_ms())

    async def outlook_of_new(
        self, request: Request, pool: str, instead_of: JobRow | None = None
    ) -> Outlook | None:
        """Return the outlook of a job that is submitted now or later; None: not known.

        instead_of: a job that would leave the queue for it
        """
        rows, _ = await self.read(pool)
        if instead_of is not None:
            rows = rows.without(instead_of.id)
        now = self._clock.now_ms()
        if request.submitted_at > now:
            return await asyncio.to_thread(look_out_later, rows, request, now)
        view = await asyncio.to_thread(view_queue, rows, now, request)
        explanation = view.explanation(request.job_id)
        return None if explanation is None else outlook_of(explanation, self._clock.now_ms())

    async def start_of_new(self, request: Request, pool: str) -> Ms | None:
        """Expected start of a job that would be submitted now; None: no node is large enough."""
        rows, _ = await self.read(pool)
        view = view_queue(rows, self._clock.now_ms(), request)
        explanation = view.explanation(request.job_id)
        return None if explanation is None else explanation.earliest

    async def _rows(self, pool: str) -> QueueRows:
        where = {"pool": pool}
        coming = [
            row
            for phase in COMING
            for row in await self._views.page(
                JOBS, {"phase": phase, "wanted": "run"}, limit=ROWS_MAX, descending=False
            )
            if row.spec.pool == pool
        ]
        return QueueRows(
            nodes=await self._views.page(NODES, where, limit=ROWS_MAX, descending=False),
            placements=await self._views.page(PLACEMENTS, where, limit=ROWS_MAX, descending=False),
            seats=await self._views.page(SEATS, where, limit=ROWS_MAX, descending=False),
            coming=coming,
            ended=await self._views.page(ATTEMPT_TIMES, where, limit=ENDED_MAX),
        )
