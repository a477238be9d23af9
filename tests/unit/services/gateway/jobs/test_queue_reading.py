"""Queues out of the read models, kept for a moment."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.account import Limits
from schemas.job import Phase
from schemas.node import DeviceFault
from schemas.reasons import device_fault, waiting
from services.gateway.jobs.domain.queue_view import Outlook, QueueRows, request_of_new, view_queue
from services.gateway.jobs.domain.responses import queue_response
from services.gateway.jobs.queue_reading import KEPT_MS, Queues
from services.gateway.views.ports import Cursor, Where
from services.gateway.views.table import R, Table, TableRow
from services.gateway.views.tables.accounts import LimitsRow
from services.gateway.views.tables.jobs import JOBS, JobRow, NodeRow, PlacementRow, SeatRow
from tests.unit.services.gateway.jobs.job_events import HELD, SPEC, SUBMITTED
from tests.unit.services.gateway.view_rows import folded, only
from tunery.plan.scheduling.requests import Request
from tunery.runtime.clock import SystemClock

NOW = 1_000_000_000
HOUR = 3_600_000
SUBMITTED_ROW = only(folded("job", SUBMITTED, HELD), JOBS)


class Rows:
    """Implements `Views`."""

    def __init__(self, **tables: Sequence[TableRow]) -> None:
        self.tables: dict[str, Sequence[Any]] = {"jobs": (), "nodes": (), "seats": (), **tables}

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
            for row in self.tables.get(table.name, ())
            if all(_matches(getattr(row, column), value) for column, value in where.items())
        ]


def _matches(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple) else bool(value == wanted)


class Still(SystemClock):
    at = NOW
    ran = 0

    def now_ms(self) -> int:
        return self.at

    def monotonic_ms(self) -> int:
        return self.ran


def job(job_id: str, phase: Phase = "queued", **changed: Any) -> JobRow:
    return replace(SUBMITTED_ROW, id=job_id, phase=phase, **changed)


def node(state: str = "alive", slots: int = 1, node_id: str = "a") -> NodeRow:
    return NodeRow(
        id=node_id,
        pool="default",
        device="cpu",
        slots=slots,
        memory_bytes=10**12,
        accelerator="",
        spot=False,
        reserved=False,
        taints=(),
        state=state,
    )


def placement(job_id: str, sequence: int = 1, **changed: Any) -> PlacementRow:
    row = PlacementRow(
        id=job_id,
        pool="default",
        tenant="acme",
        sequence=sequence,
        attempt=1,
        role="train",
        lane="standard",
        slots=1,
        device="cpu",
        memory_bytes=1,
        excluded_nodes=(),
        submitted_at=sequence,
        p50_ms=HOUR,
        p90_ms=2 * HOUR,
        estimate_ms=HOUR,
        limit_ms=2 * HOUR,
        preemptions=0,
        start_ms_max=600_000,
    )
    return replace(row, **changed)


def runs(job_id: str, lease: int = 1) -> tuple[PlacementRow, SeatRow]:
    """A job that has worked for half an hour on node `a`."""
    granted_at = NOW - HOUR // 2
    row = placement(job_id, granted_at=granted_at, started_at=granted_at)
    seat = SeatRow(
        id=f"{lease:012d}/a",
        pool="default",
        tenant="acme",
        job_id=job_id,
        lane="standard",
        role="train",
        lease=lease,
        node_id="a",
        slots=1,
        granted_at=granted_at,
    )
    return row, seat


def new(slots: int = 1) -> Request:
    assert SUBMITTED_ROW.hold is not None
    return request_of_new("acme", replace(SPEC, slots=slots), SUBMITTED_ROW.hold.estimate, NOW)


async def test_a_job_behind_another_on_one_node_has_that_reason() -> None:
    row, seat = runs("runs")
    waits = [row, placement("first", 1), placement("second", 2)]
    queues = Queues(Rows(nodes=[node()], placements=waits, seats=[seat]), Still())
    first = Outlook(
        lane="standard",
        position=1,
        ahead=0,
        reason=waiting("no_capacity", slots=1),
        earliest=NOW + HOUR // 2,
        latest=NOW + 3 * HOUR // 2,
    )
    assert await queues.outlook_of(job("first")) == first
    second = await queues.outlook_of(job("second"))
    assert second is not None
    assert (second.position, second.reason) == (2, waiting("lane_order", ahead=1))
    assert (second.earliest, second.latest) == (NOW + 3 * HOUR // 2, NOW + 7 * HOUR // 2)
    assert await queues.outlook_of(job("runs", "running")) is None
    assert await queues.outlook_of(job("paused", wanted="paused")) is None


async def test_what_a_running_job_has_done_moves_the_expected_start_of_the_next() -> None:
    row, seat = runs("runs")
    for done, least, most in ((20, HOUR, 3 * HOUR // 2), (180, 3 * HOUR // 60, 5 * HOUR // 60)):
        saved = replace(row, first_step=0, steps=200, saved_step=done, captured_ms=HOUR // 2)
        waits = [saved, placement("j")]
        queues = Queues(Rows(nodes=[node()], placements=waits, seats=[seat]), Still())
        outlook = await queues.outlook_of(job("j"))
        assert outlook is not None
        assert outlook.earliest is not None
        assert least < outlook.earliest - NOW <= most


async def test_a_paused_job_waits_for_the_quota_of_its_tenant_until_another_one_ends() -> None:
    row, seat = runs("runs")
    paused = job("paused", wanted="paused")
    tables: dict[str, Any] = {"nodes": [node()], "placements": [row], "seats": [seat]}
    tables["jobs"] = [paused, job("runs", "running"), job("done", "done", outcome="succeeded")]

    async def outlook(concurrency: int, **changed: Any) -> Outlook | None:
        limits = LimitsRow(
            id="acme",
            lane="standard",
            limits=Limits(soft_gpu_ms=1, hard_gpu_ms=1, concurrency=concurrency),
            price_version="2026-11",
        )
        return await Queues(Rows(limits=[limits], **tables | changed), Still()).outlook_of(paused)

    assert await outlook(2) is None, "it can be resumed"
    full = Outlook(
        reason=waiting("quota", limit=1), earliest=NOW + HOUR // 2, latest=NOW + 3 * HOUR // 2
    )
    assert await outlook(1) == full
    assert await outlook(1, jobs=[paused, job("stops", "checkpointing", wanted="paused")]) == full
    assert await outlook(1, jobs=[paused, job("stopped", "queued", wanted="paused")]) is None
    idle = await outlook(1, placements=[], seats=[])
    assert idle == Outlook(reason=waiting("quota", limit=1)), "nothing of the tenant runs yet"


async def test_a_job_that_prepares_its_inputs_has_a_place_and_its_own_reason() -> None:
    coming = job("coming", lane="standard")
    first = placement("first", p50_ms=0)
    queues = Queues(Rows(jobs=[coming], nodes=[node()], placements=[first]), Still())
    outlook = await queues.outlook_of(coming)
    assert outlook is not None
    assert (outlook.position, outlook.ahead, outlook.reason) == (2, 1, None)
    assert outlook.earliest == NOW + 1


async def test_a_job_that_is_granted_starts_within_the_time_that_a_start_may_take() -> None:
    row = placement("j", granted_at=NOW - 1_000)
    queues = Queues(Rows(nodes=[node()], placements=[row]), Still())
    outlook = await queues.outlook_of(job("j", "provisioning"))
    assert outlook == Outlook(earliest=NOW, latest=NOW + 599_000)


async def test_a_job_whose_cluster_has_not_admitted_it_has_the_words_of_its_queue() -> None:
    why = waiting("cluster_admission", cause="quota", condition="1 more needed")
    row = placement("j", granted_at=NOW - HOUR, wait=why, waits_since=NOW - 60_000)
    queues = Queues(Rows(nodes=[node()], placements=[row]), Still())
    outlook = await queues.outlook_of(job("j", "provisioning"))
    assert outlook == Outlook(reason=why, since=NOW - 60_000)
    response = queue_response(job("j", "provisioning"), "running", outlook)
    assert response is not None
    assert response.reason == "The cluster has not admitted it yet: 1 more needed."
    assert (response.code, response.since) == ("cluster_admission", NOW // 1_000 - 60)
    row = placement("j", granted_at=NOW - HOUR, admitted_at=NOW - 1_000)
    queues = Queues(Rows(nodes=[node()], placements=[row]), Still())
    outlook = await queues.outlook_of(job("j", "provisioning"))
    assert outlook == Outlook(earliest=NOW, latest=NOW + 599_000)


async def test_no_expected_start_is_in_the_past_however_the_clock_jumps() -> None:
    row, seat = runs("runs")
    views = Rows(nodes=[node()], placements=[row, placement("j")], seats=[seat])
    clock = Still()
    queues = Queues(views, clock)
    await queues.outlook_of(job("j"))
    for jump in (0, 1_500, 24 * HOUR, -24 * HOUR):
        clock.at = NOW + jump
        for passed in (0, 2 * KEPT_MS + 1):  # out of the rows that are kept, and out of new ones
            clock.ran += passed
            outlook = await queues.outlook_of(job("j"))
            assert outlook is not None
            assert outlook.earliest is not None
            assert outlook.latest is not None
            assert clock.at <= outlook.earliest <= outlook.latest


async def test_rows_are_kept_for_a_moment_by_the_clock_that_does_not_jump() -> None:
    views, clock = Rows(), Still()
    queues = Queues(views, clock)
    assert await queues.start_of_new(new(), "default") is None
    views.tables["nodes"] = [node()]
    clock.at -= 24 * HOUR
    assert await queues.start_of_new(new(), "default") is None
    clock.ran += 2 * KEPT_MS + 1
    assert await queues.start_of_new(new(), "default") == clock.at
    assert await queues.start_of_new(new(slots=2), "default") is None


async def test_a_job_that_is_newer_than_the_rows_is_last_until_they_are_read_again() -> None:
    views, clock = Rows(nodes=[node()], placements=[placement("first")]), Still()
    queues = Queues(views, clock)
    await queues.outlook_of(job("first"))
    new_job = job("new", "validating", lane="standard")
    views.tables["jobs"] = [new_job]
    last = Outlook(lane="standard", position=2, ahead=1, earliest=NOW, latest=NOW)
    assert await queues.outlook_of(new_job) == last
    clock.ran += 2 * KEPT_MS + 1
    again = await queues.outlook_of(new_job)
    assert again is not None
    assert (again.position, again.ahead) == (1, 0)  # it is much shorter than the other


class StuckRows(Rows):
    """Rows that are read only when `open` is set, or not at all."""

    def __init__(self, **tables: Sequence[TableRow]) -> None:
        super().__init__(**tables)
        self.open = asyncio.Event()
        self.open.set()
        self.away = False
        self.pages = 0

    async def page(self, table: Table[R], where: Where, **asked: Any) -> Sequence[R]:
        self.pages += 1
        await self.open.wait()
        if self.away:
            raise ConnectionError("the database is away")
        return await super().page(table, where, **asked)


async def test_a_queue_is_shown_while_it_is_read_again_and_one_reading_is_enough() -> None:
    views, clock = StuckRows(nodes=[node()]), Still()
    queues = Queues(views, clock)
    rows, _ = await queues.read("default")
    read = views.pages
    views.open.clear()
    clock.ran += KEPT_MS + 1
    for _ in range(3):
        assert (await queues.read("default"))[0] is rows
        await asyncio.sleep(0)
    assert views.pages == read + 1
    views.open.set()
    clock.ran += KEPT_MS
    newer, _ = await queues.read("default")
    assert newer is not rows
    assert views.pages == 2 * read


async def test_a_request_that_is_given_up_does_not_end_the_reading_of_others() -> None:
    views = StuckRows(nodes=[node()])
    views.open.clear()
    queues = Queues(views, Still())
    first, second = (asyncio.create_task(queues.read("default")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    views.open.set()
    rows, _ = await second
    assert len(rows.nodes) == 1


async def test_a_reading_that_fails_is_tried_again_by_the_next_request() -> None:
    views, clock = StuckRows(nodes=[node()]), Still()
    queues = Queues(views, clock)
    views.away = True
    with pytest.raises(ConnectionError):
        await queues.read("default")
    views.away = False
    rows, _ = await queues.read("default")
    assert len(rows.nodes) == 1


def test_devices_with_a_fault_are_no_slots_to_expect() -> None:
    """The reader of the queue plans on what the pool plans on."""
    hot = tuple(DeviceFault(device=d, reason=device_fault("throttled")) for d in (0, 1))
    of_four = replace(node(slots=4), faults=hot)
    row, seat = runs("runs")
    held = replace(seat, devices=(0,))
    rows = QueueRows(nodes=[of_four], placements=[row], seats=[held])
    assert view_queue(rows, NOW).state.capacity.free == {"a": 2}, (
        "the slow device is not waited for"
    )
    gone = QueueRows(nodes=[replace(node(slots=2), faults=hot)], placements=[], seats=[])
    assert not view_queue(gone, NOW).state.capacity.nodes
