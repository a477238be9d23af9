"""Pool: given what happened, when a command comes, then these events."""

from typing import Any

import pytest

from schemas import errors
from schemas.envelope import Rejected, Tick
from schemas.pool import (
    CheckpointAccepted,
    ClosePlacement,
    ConfirmFreed,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseStarted,
    NodeSeen,
    ObserveNodes,
    PlacementClosed,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    RetireNode,
    SlotsFreed,
    Token,
    UsageCredited,
    UsageSliced,
    WaitExplained,
)
from schemas.training import SkippedCheckpoint
from schemas.units import HOUR_MS
from services.scheduler.app import POOLS
from services.scheduler.domain.pool.deadlines import (
    DRAIN_MS,
    START_MS_MAX,
    UNREPORTED_MS_MAX,
    earliest,
)
from simulator.control_plane.samples import (
    MINUTE,
    POOL,
    SCORED,
    T0,
    TRAINED,
    checkpoint,
    node,
    request,
)
from tests.unit.services.scheduler.fold import Decider, names, of

ALIVE = "a-1"


def pool(at: int = T0) -> Decider:
    return Decider(POOLS, POOL, at)


def token(lease: int = 1) -> Token:
    return Token(pool=POOL, lease=lease)


def begun(lease: int = 1, **changes: Any) -> ReportStarted:
    whole: dict[str, Any] = {
        "token": token(lease),
        "incarnation": ALIVE,
        "loaded": None,
        "loaded_step": 0,
        "skipped": (),
        "total_steps": 40,
    }
    return ReportStarted(**(whole | changes))


def exited(lease: int = 1, **changes: Any) -> ReportExit:
    whole: dict[str, Any] = {
        "token": token(lease),
        "incarnation": ALIVE,
        "outcome": "preempted",
        "elapsed_ms": 10 * MINUTE,
    }
    return ReportExit(**(whole | changes))


def seen(last_seen: int, silent: bool = False, incarnation: str = ALIVE) -> ObserveNodes:
    one = NodeSeen(node_id="a", incarnation=incarnation, last_seen=last_seen, silent=silent)
    return ObserveNodes(seen=(one,))


def freed(lease: int = 1, incarnation: str = ALIVE) -> ConfirmFreed:
    return ConfirmFreed(lease=lease, node_id="a", incarnation=incarnation)


def running(**changes: Any) -> Decider:
    """Node `a` with 2 slots trains attempt 1 since T0."""
    return pool().given(node(), request(**changes), begun())


def test_a_placement_gets_a_lease_on_the_node_that_is_left_fullest() -> None:
    decider = pool().given(node("a", "a-1", 4), node("b", "b-1", 2))
    granted = of(decider.when(request(slots=2)), LeaseGranted)
    assert (granted.node_id, granted.incarnation, granted.token) == ("b", "b-1", token(1))
    second = of(decider.when(request("ftjob-2", slots=2)), LeaseGranted)
    assert (second.node_id, second.token) == ("a", token(2))


def test_what_waits_is_told_why_and_where_and_only_when_it_changes() -> None:
    decider = pool()
    waits = of(decider.when(request()), WaitExplained)
    assert (waits.reason, waits.position) == ("no node of the pool is up", 1)
    large = of(decider.when(request("ftjob-2", slots=9)), WaitExplained)
    assert large.position == 2
    events = decider.when(node())
    assert of(events, LeaseGranted).job_id == "ftjob-1"
    told = of(events, WaitExplained)
    assert (told.job_id, told.position) == ("ftjob-2", 1)
    assert "has 9 slots" in told.reason
    busy = of(decider.when(request("ftjob-3", slots=2)), WaitExplained)
    assert (busy.reason, busy.position) == ("waiting for 2 slots: every node that fits is busy", 2)
    assert names(decider.when(begun())) == ["LeaseStarted"]


def test_lanes_come_first_then_the_order_of_arrival() -> None:
    decider = pool()
    for job_id, lane in (("f", "free"), ("s1", "standard"), ("s2", "standard"), ("p", "premium")):
        decider.when(request(job_id, lane=lane))
    events = decider.when(node(slots=3))
    assert [e.job_id for e in events if isinstance(e, LeaseGranted)] == ["p", "s1", "s2"]
    assert of(events, WaitExplained).job_id == "f"


def test_an_excluded_node_is_not_used() -> None:
    decider = pool().given(node("b", "b-1"), request("ftjob-2", slots=2), node())
    told = of(decider.when(request(exclude_nodes=("a",))), WaitExplained)
    assert told.reason == "waiting for 1 slot: every node that fits is busy"
    assert of(decider.when(node("c", "c-1")), LeaseGranted).node_id == "c"


def test_an_excluded_node_is_better_than_waiting_for_ever() -> None:
    decider = pool().given(node(), node("b", "b-1", slots=1))
    granted = of(decider.when(request(slots=2, exclude_nodes=("a", "x"))), LeaseGranted)
    assert granted.node_id == "a"


def test_a_request_counts_once() -> None:
    decider = pool().given(request())
    assert decider.when(request()) == ()
    decider.given(ClosePlacement(job_id="ftjob-1", attempt=1, mode="drain"))
    assert decider.when(request()) == ()
    assert "PlacementQueued" in names(decider.when(request(attempt=2)))


def test_success_is_billed_from_the_accepted_start_to_the_reported_elapsed_time() -> None:
    decider = running(slots=2)
    decider.at += 25 * MINUTE
    events = decider.when(exited(outcome="succeeded", elapsed_ms=20 * MINUTE, result=TRAINED))
    assert names(events) == ["UsageSliced", "PlacementClosed"]
    closed = of(events, PlacementClosed)
    assert (closed.outcome, closed.used_gpu_ms, closed.lost_gpu_ms) == (
        "succeeded",
        40 * MINUTE,
        0,
    )
    assert closed.result == TRAINED


@pytest.mark.parametrize(("reported", "counted"), [(-5, 0), (90 * MINUTE, 10 * MINUTE)])
def test_elapsed_time_is_clamped_to_the_lease(reported: int, counted: int) -> None:
    decider = running()
    decider.at += 10 * MINUTE
    closed = of(decider.when(exited(elapsed_ms=reported)), PlacementClosed)
    assert closed.used_gpu_ms == counted


def test_a_success_without_a_result_is_a_platform_error() -> None:
    closed = of(running().when(exited(outcome="succeeded")), PlacementClosed)
    assert (closed.outcome, closed.cause) == ("failed", "platform")


@pytest.mark.parametrize(
    "late",
    [
        begun(),
        exited(),
        ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=checkpoint(10)),
    ],
)
def test_after_the_end_every_report_is_stale(late: Any) -> None:
    decider = running().given(exited())
    assert of(decider.when(late), Rejected).code == errors.STALE_TOKEN
    decider.given(freed())
    assert of(decider.when(late), Rejected).code == errors.STALE_TOKEN


def test_a_token_of_another_lease_pool_or_incarnation_is_stale() -> None:
    decider = running()
    for wrong in (
        begun(lease=2),
        begun(token=Token(pool="other", lease=1)),
        begun(incarnation="a-0"),
    ):
        assert of(decider.when(wrong), Rejected).code == errors.STALE_TOKEN


def test_a_start_counts_once() -> None:
    decider = running()
    decider.at += MINUTE
    assert decider.when(begun()) == ()
    assert of(decider.when(exited(elapsed_ms=9 * MINUTE)), PlacementClosed).used_gpu_ms == MINUTE


def test_a_checkpoint_is_accepted_once_and_its_capture_is_clamped() -> None:
    decider = running()
    decider.at += 5 * MINUTE
    report = ReportCheckpoint(
        token=token(), incarnation=ALIVE, checkpoint=checkpoint(10, captured_ms=9 * MINUTE)
    )
    accepted = of(decider.when(report), CheckpointAccepted)
    assert accepted.checkpoint.captured_ms == 5 * MINUTE
    assert decider.when(report) == ()
    other = ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=checkpoint(10, attempt=2))
    assert of(decider.when(other), Rejected).code == errors.ILLEGAL_STATE


def test_a_capture_after_the_cap_counts_as_the_cap() -> None:
    """What ran above the cap was not billed, so it cannot be credited later."""
    decider = running(max_gpu_ms=10 * MINUTE)
    decider.at += 20 * MINUTE
    report = ReportCheckpoint(
        token=token(), incarnation=ALIVE, checkpoint=checkpoint(10, captured_ms=19 * MINUTE)
    )
    assert of(decider.when(report), CheckpointAccepted).checkpoint.captured_ms == 10 * MINUTE


def test_slots_return_only_when_the_agent_confirms() -> None:
    decider = running(slots=2).given(exited(outcome="failed", cause="user"))
    assert of(decider.when(request("ftjob-2")), WaitExplained).position == 1
    wrong = decider.when(freed(incarnation="a-0"))
    assert of(wrong, Rejected).code == errors.STALE_TOKEN
    events = decider.when(freed())
    assert names(events) == ["SlotsFreed", "LeaseGranted"]
    assert decider.when(freed()) == ()


def test_slots_confirmed_without_an_exit_end_the_lease_as_a_platform_error() -> None:
    events = running().when(freed())
    closed = of(events, PlacementClosed)
    assert (closed.outcome, closed.cause) == ("failed", "platform")
    assert names(events)[-1] == "SlotsFreed"


def test_a_lost_node_ends_its_leases_at_the_last_proof_of_life() -> None:
    decider = running(slots=2)
    decider.at = T0 + 8 * MINUTE
    decider.given(
        ReportCheckpoint(
            token=token(),
            incarnation=ALIVE,
            checkpoint=checkpoint(10, captured_ms=7 * MINUTE),
        )
    )
    decider.at = T0 + 15 * MINUTE
    events = decider.when(seen(T0 + 10 * MINUTE, silent=True))
    assert names(events) == [
        "NodesObserved",
        "NodeLost",
        "LeaseKilled",
        "UsageSliced",
        "UsageCredited",
        "PlacementClosed",
    ]
    closed = of(events, PlacementClosed)
    assert (closed.outcome, closed.used_gpu_ms) == ("lost", 20 * MINUTE)
    assert (closed.billable_gpu_ms, closed.lost_gpu_ms) == (20 * MINUTE, 6 * MINUTE)
    assert of(events, UsageCredited).cause == "lost"
    assert "PlacementQueued" in names(decider.when(request(attempt=2)))
    assert decider.when(seen(T0 + 10 * MINUTE, silent=True)) != events


def test_the_slots_of_a_lost_node_come_back_with_a_new_incarnation() -> None:
    decider = running(slots=2)
    decider.at += MINUTE
    decider.given(seen(T0 + 1, silent=True), request(attempt=2, slots=2))
    assert names(decider.when(node())) == []
    events = decider.when(node(incarnation="a-2"))
    assert names(events) == ["SlotsFreed", "NodeRegistered", "LeaseGranted"]
    assert of(events, LeaseGranted).incarnation == "a-2"
    assert of(decider.when(node(incarnation="a-1")), Rejected).code == errors.STALE_TOKEN


def test_a_node_that_was_silent_and_speaks_again_must_free_its_slots_first() -> None:
    decider = running(slots=2)
    decider.at += MINUTE
    decider.given(seen(T0 + 1, silent=True), request(attempt=2, slots=2))
    decider.given(seen(T0 + MINUTE))
    assert decider.state[POOL].nodes["a"].standing == "up"
    assert len(decider.state[POOL].waiting) == 1
    assert names(decider.when(freed())) == ["SlotsFreed", "LeaseGranted"]


def test_a_new_incarnation_ends_older_leases_at_their_last_sign_of_life() -> None:
    decider = running()
    decider.at += 5 * MINUTE
    decider.given(
        ReportCheckpoint(
            token=token(), incarnation=ALIVE, checkpoint=checkpoint(10, captured_ms=4 * MINUTE)
        )
    )
    decider.at += 20 * MINUTE
    events = decider.when(node(incarnation="a-2"))
    closed = of(events, PlacementClosed)
    assert (closed.outcome, closed.used_gpu_ms, closed.lost_gpu_ms) == (
        "lost",
        5 * MINUTE,
        MINUTE,
    )
    assert names(events)[-2:] == ["SlotsFreed", "NodeRegistered"]


def test_a_lease_that_never_started_costs_nothing() -> None:
    decider = pool().given(node(), request())
    decider.at += 30 * MINUTE
    events = decider.when(seen(T0 + 20 * MINUTE, silent=True))
    closed = of(events, PlacementClosed)
    assert (closed.outcome, closed.used_gpu_ms, closed.lost_gpu_ms) == ("lost", 0, 0)
    assert "UsageSliced" not in names(events)


def test_slices_are_written_when_proof_of_life_passes_their_hour() -> None:
    decider = running()
    decider.at = T0 + 2 * HOUR_MS + 5 * MINUTE
    sliced = [e for e in decider.when(seen(T0 + 2 * HOUR_MS + MINUTE)) if type(e) is UsageSliced]
    assert [line.hour for line in sliced] == [T0 // HOUR_MS, T0 // HOUR_MS + 1]
    assert all(line.used_gpu_ms == HOUR_MS for line in sliced)
    assert names(decider.when(seen(T0 + 2 * HOUR_MS + MINUTE))) == ["NodesObserved"]
    last = of(decider.when(exited(elapsed_ms=MINUTE)), PlacementClosed)
    assert last.used_gpu_ms == 2 * HOUR_MS  # what is sliced stays


def test_close_takes_a_waiting_placement_out_of_the_queue() -> None:
    decider = pool().given(request())
    close = ClosePlacement(job_id="ftjob-1", attempt=1, mode="drain")
    closed = of(decider.when(close), PlacementClosed)
    assert (closed.outcome, closed.node_id, closed.used_gpu_ms) == ("not_started", None, 0)
    assert decider.when(close) == ()
    assert "LeaseGranted" not in names(decider.when(node()))


def test_close_before_the_start_ends_the_placement_and_keeps_the_slots() -> None:
    decider = pool().given(node(slots=1), request())
    close = ClosePlacement(job_id="ftjob-1", attempt=1, mode="drain")
    assert names(decider.when(close)) == ["LeaseKilled", "PlacementClosed"]
    assert of(decider.when(begun()), Rejected).code == errors.STALE_TOKEN
    assert "LeaseGranted" not in names(decider.when(request("ftjob-2")))
    assert names(decider.when(freed())) == ["SlotsFreed", "LeaseGranted"]


def test_a_drain_becomes_a_kill_at_its_deadline_and_repeats_only_harden() -> None:
    decider = running()
    drain = ClosePlacement(job_id="ftjob-1", attempt=1, mode="drain")
    kill = ClosePlacement(job_id="ftjob-1", attempt=1, mode="kill")
    draining = of(decider.when(drain), LeaseDraining)
    assert (draining.deadline, draining.reason) == (T0 + DRAIN_MS, "closed")
    assert earliest(decider.state) == (T0 + DRAIN_MS, POOL)
    assert decider.when(drain) == ()
    assert decider.when(Tick()) == ()
    decider.at += DRAIN_MS
    assert names(decider.when(Tick())) == ["LeaseKilled"]
    assert decider.when(kill) == decider.when(drain) == ()
    closed = of(decider.when(exited(outcome="failed", cause="platform")), PlacementClosed)
    assert (closed.outcome, closed.cause, closed.lost_gpu_ms) == ("preempted", None, 0)


def test_a_tenant_who_stops_a_job_pays_for_what_ran() -> None:
    decider = running().given(ClosePlacement(job_id="ftjob-1", attempt=1, mode="kill"))
    decider.at += 10 * MINUTE
    closed = of(decider.when(exited()), PlacementClosed)
    assert (closed.billable_gpu_ms, closed.lost_gpu_ms) == (10 * MINUTE, 0)


def test_a_cancelled_job_is_not_credited_when_its_node_is_lost_after_the_kill() -> None:
    decider = running()
    decider.at = T0 + 10 * MINUTE
    decider.given(ClosePlacement(job_id="ftjob-1", attempt=1, mode="kill"))
    decider.at = T0 + 12 * MINUTE
    closed = of(decider.when(seen(T0 + 11 * MINUTE, silent=True)), PlacementClosed)
    assert closed.outcome == "preempted"
    assert (closed.billable_gpu_ms, closed.lost_gpu_ms) == (10 * MINUTE, 0)


def test_a_node_that_died_before_the_kill_is_credited() -> None:
    decider = running()
    decider.at = T0 + 10 * MINUTE
    decider.given(ClosePlacement(job_id="ftjob-1", attempt=1, mode="kill"))
    closed = of(decider.when(seen(T0 + 9 * MINUTE, silent=True)), PlacementClosed)
    assert (closed.outcome, closed.billable_gpu_ms) == ("lost", 9 * MINUTE)
    assert closed.lost_gpu_ms == 9 * MINUTE


def test_slots_confirmed_after_a_kill_are_no_platform_error() -> None:
    decider = running()
    decider.at = T0 + 10 * MINUTE
    decider.given(ClosePlacement(job_id="ftjob-1", attempt=1, mode="kill"))
    decider.at = T0 + 11 * MINUTE
    closed = of(decider.when(freed()), PlacementClosed)
    assert (closed.outcome, closed.cause) == ("preempted", None)
    assert (closed.billable_gpu_ms, closed.lost_gpu_ms) == (10 * MINUTE, 0)


def test_an_agent_that_leaves_before_the_start_is_no_failure() -> None:
    decider = pool().given(node(), request())
    closed = of(decider.when(exited(outcome="not_started", elapsed_ms=0)), PlacementClosed)
    assert (closed.outcome, closed.cause) == ("not_started", None)


def test_a_preemption_by_the_platform_is_credited() -> None:
    decider = running()
    decider.at += 10 * MINUTE
    events = decider.when(exited())
    assert of(events, UsageCredited).cause == "preempted"
    assert of(events, PlacementClosed).lost_gpu_ms == 10 * MINUTE


def test_the_cap_notice_kill_and_outcome() -> None:
    """60 slot-minutes on 2 slots: the notice at 28 minutes, the kill at 30, nothing above."""
    decider = running(slots=2)
    assert earliest(decider.state) == (T0 + 28 * MINUTE, POOL)
    decider.at = T0 + 28 * MINUTE
    draining = of(decider.when(Tick()), LeaseDraining)
    assert (draining.deadline, draining.reason) == (T0 + 30 * MINUTE, "budget")
    decider.at = T0 + 30 * MINUTE
    assert names(decider.when(Tick())) == ["LeaseKilled"]
    decider.at = T0 + 31 * MINUTE
    events = decider.when(exited(outcome="preempted", elapsed_ms=31 * MINUTE))
    closed = of(events, PlacementClosed)
    assert (closed.outcome, closed.cause) == ("failed", "budget")
    assert (closed.used_gpu_ms, closed.billable_gpu_ms, closed.lost_gpu_ms) == (
        62 * MINUTE,
        60 * MINUTE,
        0,
    )


def test_a_late_tick_gives_notice_and_kills_at_once() -> None:
    decider = running()
    decider.at = T0 + 90 * MINUTE
    assert names(decider.when(Tick())) == ["LeaseDraining", "LeaseKilled"]


def test_an_agent_that_never_starts_or_never_reports_does_not_hold_a_job() -> None:
    decider = pool().given(node(), request())
    decider.at += START_MS_MAX
    closed = of(decider.when(Tick()), PlacementClosed)
    assert (closed.outcome, closed.cause) == ("failed", "platform")
    decider = running().given(ClosePlacement(job_id="ftjob-1", attempt=1, mode="kill"))
    decider.at += UNREPORTED_MS_MAX
    closed = of(decider.when(Tick()), PlacementClosed)
    assert (closed.outcome, closed.used_gpu_ms) == ("preempted", 0)
    assert len(decider.state[POOL].leases) == 1  # its slots are not free for that


def test_work_behind_a_bad_checkpoint_is_credited_at_the_start() -> None:
    named = (
        checkpoint(20, captured_ms=9 * MINUTE),
        checkpoint(10, captured_ms=4 * MINUTE),
    )
    decider = pool().given(node(), request(attempt=2, checkpoints=named))
    bad = SkippedCheckpoint(manifest_sha256=named[0].manifest_sha256, reason="hash mismatch")
    events = decider.when(begun(loaded=named[1].manifest_sha256, loaded_step=10, skipped=(bad,)))
    assert of(events, LeaseStarted).skipped == (bad,)
    credit = of(events, UsageCredited)
    assert (credit.lost_gpu_ms, credit.cause) == (5 * MINUTE, "skipped_checkpoint")
    decider.at += MINUTE
    closed = of(
        decider.when(exited(outcome="succeeded", elapsed_ms=MINUTE, result=TRAINED)),
        PlacementClosed,
    )
    assert closed.lost_gpu_ms == 5 * MINUTE


def test_an_evaluation_is_a_lease_like_any_other() -> None:
    decider = pool().given(node(), request(role="eval"), begun())
    refused = decider.when(
        ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=checkpoint(1))
    )
    assert of(refused, Rejected).code == errors.ILLEGAL_STATE
    closed = of(decider.when(exited(outcome="succeeded", result=SCORED)), PlacementClosed)
    assert closed.result == SCORED


def test_a_node_leaves_in_order() -> None:
    decider = running().given(exited(), freed())
    retire = RetireNode(node_id="a", incarnation=ALIVE)
    assert names(decider.when(retire)) == ["NodeRetired"]
    assert decider.when(retire) == ()
    assert of(decider.when(request("ftjob-2")), WaitExplained).reason == "no node of the pool is up"
    wrong = decider.when(RetireNode(node_id="a", incarnation="a-9"))
    assert of(wrong, Rejected).code == errors.STALE_TOKEN
    assert decider.when(seen(T0)) == ()


def test_a_node_that_leaves_with_work_loses_it() -> None:
    events = running().when(RetireNode(node_id="a", incarnation=ALIVE))
    assert of(events, PlacementClosed).outcome == "lost"
    assert of(events, SlotsFreed).token == token()


def test_malformed_numbers_are_refused() -> None:
    assert of(pool().when(node(slots=0)), Rejected).param == "slots"
    assert of(pool().when(request(slots=0)), Rejected).param == "slots"


def test_observations_of_strangers_say_nothing() -> None:
    decider = pool().given(node())
    assert decider.when(seen(T0, incarnation="a-9")) == ()
    assert decider.when(ObserveNodes(seen=())) == ()
    assert of(running().when(seen(T0 + 1, silent=True)), LeaseKilled).node_id == "a"
