"""Why jobs wait and when they are expected to start, from rows that are kept for a moment."""

import asyncio
from typing import Final

from schemas.units import Ms
from services.gateway.jobs.queue_view import (
    COMING,
    Outlook,
    QueueRows,
    QueueView,
    look_out,
    view_queue,
)
from services.gateway.jobs.tables import JOBS, NODES, PLACEMENTS, SEATS, JobRow
from services.gateway.ports import Views
from tunery.plan.scheduling.requests import Request
from tunery.runtime.clock import Clock

KEPT_MS: Final[Ms] = 2_000
KEPT_SHARE: Final = 10  # and so many times as long as the reading took
ROWS_MAX: Final = 20_000  # of each kind; a longer queue is explained as if it ended there
WAITING: Final = (*COMING, "provisioning", "evaluating")  # and those in which a job may wait there


class Queues:
    """Reads the queues of pools. Requests at the same time share one reading."""

    def __init__(self, views: Views, clock: Clock) -> None:
        self._views, self._clock = views, clock
        self._reading = asyncio.Lock()
        self._kept: dict[str, tuple[Ms, QueueRows, QueueView]] = {}

    async def read(self, pool: str) -> tuple[QueueRows, QueueView]:
        """The queue of a pool, as it was at most KEPT_MS ago."""
        async with self._reading:
            # by the clock that does not jump: an old view must not be kept because time went back
            began = self._clock.monotonic_ms()
            kept = self._kept.get(pool)
            if kept is None or began > kept[0]:
                rows = await self._rows(pool)
                # 10,000 jobs on 1,000 nodes take a second: other requests go on meanwhile
                view = await asyncio.to_thread(view_queue, rows, self._clock.now_ms())
                now = self._clock.monotonic_ms()
                kept = (now + max(KEPT_MS, KEPT_SHARE * (now - began)), rows, view)
                self._kept[pool] = kept
            return kept[1], kept[2]

    async def outlook_of(self, row: JobRow) -> Outlook | None:
        """Why a job waits, and until when; None: it does not."""
        if row.wanted != "run" or row.phase not in WAITING:
            return None
        rows, view = await self.read(row.spec.pool)
        return look_out(row, rows, view, self._clock.now_ms())

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
        )
