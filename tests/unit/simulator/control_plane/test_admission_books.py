"""The second account of leases that wait: when it objects, and when it does not."""

from typing import Any

from msgspec.structs import replace

from schemas.envelope import Tick
from schemas.pool import (
    AttemptEnd,
    LeaseAdmitted,
    LeaseGranted,
    LeaseKilled,
    LeaseStarted,
    LeaseWaits,
    PlacementClosed,
    UsageSliced,
)
from schemas.reasons import ending, waiting
from schemas.training import AttemptStart
from schemas.units import HOUR_MS
from simulator.control_plane.admission_books import AdmissionBooks
from simulator.control_plane.samples import T0
from tests.unit.simulator.control_plane.test_books import LEASE

WHY = waiting("cluster_admission", cause="quota", condition="1 more needed")
WAITS = LeaseWaits(lease=LEASE, since=T0, reason=WHY)
ADMITTED = LeaseAdmitted(lease=LEASE)
START = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=1)
STARTED = LeaseStarted(lease=LEASE, start=START)
USED = UsageSliced(lease=LEASE, hour_utc=0, used_gpu_ms=1, billable_gpu_ms=1)
KILLED = LeaseKilled(lease=LEASE, ended_by="platform", reason=ending("not_admitted"))
END = AttemptEnd(outcome="not_started", ended_by="platform", reason=ending("not_admitted"))
CLOSED = PlacementClosed(tenant="acme", job_id="ftjob-1", attempt=1, role="train", end=END)


GRANTED = LeaseGranted(lease=LEASE, members=())


def said(*events: Any, at: int = T0 + HOUR_MS) -> list[str]:
    books = AdmissionBooks()
    for event in (GRANTED, *events):
        books.enter(Tick() if event is None else None, () if event is None else (event,), at)
    return [violation.split(":")[0] for violation in books.violations]


def test_what_waits_is_not_billed_and_waits_once() -> None:
    assert said(WAITS, ADMITTED, STARTED, USED) == []
    assert said(WAITS, STARTED, USED) == []
    assert said(WAITS, USED) == ["admission"]
    assert said(WAITS, ADMITTED, WAITS) == ["admission"]
    assert said(STARTED, WAITS) == ["admission"]
    assert said(ADMITTED) == ["admission"]


def test_what_waits_is_given_back_in_time_and_does_not_run_then() -> None:
    assert said(WAITS, KILLED, CLOSED, None) == []
    assert said(WAITS, KILLED, CLOSED, STARTED) == ["admission"]
    assert said(WAITS, None) == ["admission"]
    assert said(WAITS, KILLED, at=T0 + HOUR_MS - 1) == ["admission"], "too early"
    assert said(KILLED) == ["admission"], "it did not wait"
    failed = replace(CLOSED, end=replace(END, outcome="failed"))
    assert said(WAITS, KILLED, failed) == ["admission"]
