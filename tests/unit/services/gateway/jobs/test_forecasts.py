"""Forecasts out of the read models, kept for a moment."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from schemas.job import Phase
from services.gateway.jobs.forecasts import KEPT_MS, Forecasts
from services.gateway.jobs.queue_forecast import Outlook
from services.gateway.jobs.tables import JOBS, JobRow, NodeRow
from services.gateway.ports import Cursor, Where
from services.gateway.views.table import R, Table, TableRow
from tests.unit.services.gateway.jobs.job_events import HELD, SUBMITTED
from tests.unit.services.gateway.view_rows import folded, only
from tunery.runtime.clock import SystemClock

NOW = 1_000_000_000
SUBMITTED_ROW = only(folded("job", SUBMITTED, HELD), JOBS)


class Rows:
    """Implements `Views`."""

    def __init__(self, jobs: Sequence[TableRow] = (), nodes: Sequence[TableRow] = ()) -> None:
        self.tables: dict[str, Sequence[Any]] = {"jobs": jobs, "nodes": nodes}

    async def sums(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def first(self, table: Table[R], where: Where) -> R | None:
        raise NotImplementedError

    async def page(
        self,
        table: Table[R],
        where: Where,
        *,
        limit: int,
        after: Cursor | None = None,
        descending: bool = True,
    ) -> Sequence[R]:
        return [
            row
            for row in self.tables[table.name]
            if all(getattr(row, column) == value for column, value in where.items())
        ]


class Still(SystemClock):
    at = NOW

    def now_ms(self) -> int:
        return self.at


def job(job_id: str, phase: Phase, sequence: int | None = None, **changed: Any) -> JobRow:
    assert SUBMITTED_ROW.hold is not None
    estimate = replace(SUBMITTED_ROW.hold.estimate, train_gpu_ms=500_000, eval_gpu_ms=100_000)
    hold = replace(SUBMITTED_ROW.hold, estimate=estimate)
    row = replace(SUBMITTED_ROW, id=job_id, phase=phase, queue_sequence=sequence, hold=hold)
    return replace(row, **changed)


def node(state: str, slots: int) -> NodeRow:
    return NodeRow(id="a", pool="default", device="cpu", slots=slots, memory_bytes=1, state=state)


async def test_forecasts_follow_the_order_of_the_queue() -> None:
    jobs = [
        job("second", "queued", 2),
        job("first", "queued", 1),
        job("paused", "queued", 0, wanted="paused"),
        job("runs", "running", started_at=NOW - 400_000),
    ]
    nodes = [node("alive", 1), node("lost", 9)]
    clock = Still()
    forecasts = Forecasts(Rows(jobs=jobs, nodes=nodes), clock)
    assert await forecasts.outlook_of("first") == Outlook(1, NOW + 200_000)
    assert await forecasts.outlook_of("second") == Outlook(2, NOW + 800_000)
    assert await forecasts.outlook_of("paused") == Outlook(None, None)
    assert await forecasts.start_of_new(1) == NOW + 1_400_000
    assert await forecasts.start_of_new(2) is None


async def test_rows_are_cached_for_a_moment_only() -> None:
    views, clock = Rows(nodes=[]), Still()
    forecasts = Forecasts(views, clock)
    assert await forecasts.start_of_new(1) is None
    views.tables["nodes"] = [node("alive", 1)]
    assert await forecasts.start_of_new(1) is None
    clock.at += KEPT_MS + 1
    assert await forecasts.start_of_new(1) == clock.at


async def test_the_queue_is_in_the_order_of_lanes_then_of_arrival_in_the_pool() -> None:
    jobs = [
        job("late", "queued", 9, lane="standard"),
        job("unknown to the pool", "queued", lane="standard"),
        job("early", "queued", 3, lane="standard"),
        job("free", "queued", 1, lane="free"),
        job("premium", "queued", 8, lane="premium"),
    ]
    forecasts = Forecasts(Rows(jobs=jobs, nodes=[node("alive", 1)]), Still())
    order = [(await forecasts.outlook_of(row.id)).position for row in jobs]
    assert order == [3, 4, 2, 5, 1]
