"""Forecasts out of the read models, kept for a moment."""

from collections.abc import Sequence
from typing import Any

from services.gateway.jobs.forecasts import KEPT_MS, Forecasts
from services.gateway.jobs.queue_forecast import Outlook
from services.gateway.ports import Cursor, Row
from services.gateway.views.tables import Table
from tunery.runtime.clock import SystemClock

NOW = 1_000_000_000
HOLD = {"estimate": {"train_gpu_ms": 500_000, "eval_gpu_ms": 100_000}}


class Rows:
    """Implements `Views`."""

    def __init__(self, **tables: list[dict[str, Any]]) -> None:
        self.tables = tables

    async def one(self, table: Table, where: Row) -> Row | None:
        raise NotImplementedError

    async def page(
        self,
        table: Table,
        where: Row,
        *,
        limit: int,
        after: Cursor | None = None,
        descending: bool = True,
    ) -> Sequence[Row]:
        rows = self.tables.get(table.name, [])
        return [row for row in rows if where.items() <= row.items()]


class Still(SystemClock):
    at = NOW

    def now_ms(self) -> int:
        return self.at


def job(job_id: str, phase: str, sequence: int | None = None, **changed: Any) -> dict[str, Any]:
    return {
        "id": job_id,
        "phase": phase,
        "wanted": "run",
        "spec": {"slots": 1},
        "hold": HOLD,
        "lane": "standard",
        "queue_sequence": sequence,
        "started_at": None,
        **changed,
    }


async def test_the_queue_is_played_through_in_its_order() -> None:
    jobs = [
        job("second", "queued", 2),
        job("first", "queued", 1),
        job("paused", "queued", 0, wanted="paused"),
        job("runs", "running", started_at=NOW - 400_000),
    ]
    nodes = [{"state": "alive", "slots": 1}, {"state": "lost", "slots": 9}]
    clock = Still()
    forecasts = Forecasts(Rows(jobs=jobs, nodes=nodes), clock)
    assert await forecasts.outlook_of("first") == Outlook(1, NOW + 200_000)
    assert await forecasts.outlook_of("second") == Outlook(2, NOW + 800_000)
    assert await forecasts.outlook_of("paused") == Outlook(None, None)
    assert await forecasts.start_of_new(1) == NOW + 1_400_000
    assert await forecasts.start_of_new(2) is None


async def test_what_was_read_is_kept_for_a_moment_only() -> None:
    views, clock = Rows(nodes=[]), Still()
    forecasts = Forecasts(views, clock)
    assert await forecasts.start_of_new(1) is None
    views.tables["nodes"] = [{"state": "alive", "slots": 1}]
    assert await forecasts.start_of_new(1) is None
    clock.at += KEPT_MS + 1
    assert await forecasts.start_of_new(1) == clock.at


async def test_the_queue_is_in_the_order_of_lanes_then_of_arrival_in_the_pool() -> None:
    jobs = [
        job("late", "queued", 9),
        job("unknown to the pool", "queued"),
        job("early", "queued", 3),
        job("free", "queued", 1, lane="free"),
        job("premium", "queued", 8, lane="premium"),
    ]
    forecasts = Forecasts(Rows(jobs=jobs, nodes=[{"state": "alive", "slots": 1}]), Still())
    order = [(await forecasts.outlook_of(str(row["id"]))).position for row in jobs]
    assert order == [3, 4, 2, 5, 1]
