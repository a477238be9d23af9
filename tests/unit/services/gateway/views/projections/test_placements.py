"""Given events of `pool`, then rows of the queue and of what leases hold."""

from msgspec.structs import replace

from schemas.node import BackOffEnded, Beneficiary, Seat
from schemas.pool import (
    AttemptEnd,
    CheckpointAccepted,
    Event,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    LeaseStarted,
    MemberFreed,
    PlacementClosed,
    PlacementQueued,
)
from schemas.reasons import ending
from schemas.training import AttemptStart, ExpectedTime
from schemas.works import WorkForgotten
from services.gateway.views.tables.jobs import ATTEMPT_NODES, ATTEMPT_TIMES, PLACEMENTS, SEATS
from tests.unit.services.gateway.jobs.job_events import CHECKPOINT, JOB, placed
from tests.unit.services.gateway.view_rows import Records, folded, only, rows
from tests.unit.services.gateway.views.projections.test_pool import LEASE

QUEUED = PlacementQueued(placement=placed(1).placement)
AGAIN = PlacementQueued(placement=placed(2).placement)
MEMBER = LeaseMember(node_id="a", incarnation="i", slots=1, devices=(0,))
GRANTED = LeaseGranted(lease=LEASE, members=(MEMBER,))
START = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=20)
STARTED = LeaseStarted(lease=LEASE, start=START)
END = AttemptEnd(outcome="lost", ended_by="node", reason=ending("node_lost"), node_ids=("a",))
CLOSED = PlacementClosed(tenant="acme", job_id=JOB, attempt=1, role="train", end=END)
FREED = MemberFreed(lease=LEASE, node_id="a")


def after(*events: Event) -> Records:
    return folded("pool", *events, key="default")


def test_a_placement_is_there_from_its_queueing_to_its_end() -> None:
    waits = only(after(QUEUED), PLACEMENTS)
    assert (waits.id, waits.granted_at, waits.p50_ms) == (JOB, None, 100_000)
    taught = replace(QUEUED, expected=ExpectedTime(p50_ms=5, p90_ms=7))
    waits = only(after(taught), PLACEMENTS)
    assert (waits.p50_ms, waits.p90_ms, waits.estimate_ms) == (5, 7, 100_000)
    assert only(after(QUEUED, GRANTED), PLACEMENTS).granted_at is not None
    saved = CheckpointAccepted(lease=LEASE, checkpoint=CHECKPOINT)
    runs = only(after(QUEUED, GRANTED, STARTED, saved), PLACEMENTS)
    assert (runs.captured_ms, runs.saved_step) == (9, CHECKPOINT.step)
    assert (runs.first_step, runs.steps) == (0, 20)
    assert runs.started_at is not None
    assert rows(after(QUEUED, GRANTED, STARTED, CLOSED), PLACEMENTS) == []


def test_nodes_of_an_attempt_are_known_also_after_its_end() -> None:
    forgotten = WorkForgotten(job_id=JOB)
    node = only(after(QUEUED, GRANTED, CLOSED, FREED, forgotten), ATTEMPT_NODES)
    assert (node.job_id, node.attempt, node.node_id) == (JOB, 1, "a")


def test_what_an_attempt_was_expected_to_take_is_kept_beside_what_it_took() -> None:
    """Once it has succeeded; the end of any other says nothing."""
    end = replace(END, outcome="succeeded", used_gpu_ms=90_000)
    took = only(after(QUEUED, GRANTED, STARTED, replace(CLOSED, end=end)), ATTEMPT_TIMES)
    assert (took.id, took.role, took.slots) == (f"{JOB}/1", "train", 1)
    assert (took.p50_ms, took.first_step, took.used_gpu_ms) == (100_000, 0, 90_000)
    assert rows(after(QUEUED, GRANTED, STARTED), ATTEMPT_TIMES) == []
    assert after(QUEUED, GRANTED, STARTED, CLOSED)[ATTEMPT_TIMES.name] == {}


def test_slots_are_held_until_the_agent_says_that_they_are_free() -> None:
    seat = only(after(QUEUED, GRANTED, CLOSED), SEATS)
    assert (seat.node_id, seat.slots, seat.lease) == ("a", 1, 7)
    assert rows(after(QUEUED, GRANTED, CLOSED, FREED), SEATS) == []


def test_what_makes_way_has_a_deadline_and_the_other_its_seats() -> None:
    other = replace(LEASE, job_id="ftjob-2")
    seats = (Seat(node_id="a", slots=1),)
    draining = LeaseDraining(
        lease=other,
        deadline=9_000_000,
        ended_by="scheduler",
        reason=ending("preempted"),
        beneficiary=Beneficiary(job_id=JOB, attempt=1, seats=seats),
    )
    runs = PlacementQueued(placement=replace(placed(1).placement, job_id="ftjob-2"))
    records = after(QUEUED, runs, draining)
    waits, stopped = rows(records, PLACEMENTS)
    assert (waits.bound, stopped.ends_by) == (seats, 9_000_000)
    assert only(after(QUEUED, draining, GRANTED), PLACEMENTS).bound is None
    killed = LeaseKilled(lease=LEASE, ended_by="tenant", reason=ending("cancelled"))
    assert only(after(QUEUED, GRANTED, killed), PLACEMENTS).ends_by is not None


def test_nodes_of_a_failed_attempt_are_remembered_until_the_back_off_is_over() -> None:
    failed = replace(CLOSED, end=replace(END, outcome="failed", cause="bad_node"))
    assert rows(after(QUEUED, GRANTED, failed), PLACEMENTS) == []
    again = only(after(QUEUED, GRANTED, failed, AGAIN), PLACEMENTS)
    assert (again.attempt, again.barred, again.granted_at) == (2, ("a",), None)
    over = BackOffEnded(job_id=JOB, node_ids=("a",))
    assert only(after(QUEUED, failed, AGAIN, over), PLACEMENTS).barred is None
    gone = after(QUEUED, failed, WorkForgotten(job_id=JOB))
    assert gone[PLACEMENTS.name] == {}
