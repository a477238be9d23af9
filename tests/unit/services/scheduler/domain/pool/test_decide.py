"""Pool: given what happened, when a command comes, then these events."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected, Tick
from schemas.node import NodeSeen
from schemas.pool import (
    AttemptEnd,
    CheckpointAccepted,
    CloseMode,
    ClosePlacement,
    ConfirmFreed,
    EndAuthor,
    EndRequest,
    ForgetWork,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    MemberFreed,
    ObserveNodes,
    PlacementClosed,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    RetireNode,
    Token,
    UsageCredited,
    UsageSliced,
)
from schemas.reasons import ending
from schemas.training import AttemptStart, LeaseHardware
from schemas.units import HOUR_MS
from services.scheduler.app import POOLS
from services.scheduler.domain.pool.deadlines import DRAIN_MS, UNREPORTED_MS_MAX
from simulator.control_plane.samples import (
    MINUTE,
    POOL,
    SCORED,
    T0,
    TRAINED,
    checkpoint,
    describe,
    node,
    request,
)
from tests.ticks import next_tick
from tests.unit.services.scheduler.fold import Decider, names, of

ALIVE = "a-1"


JOBS = ("ftjob-1", "ftjob-2", "ftjob-3", "f", "s1", "s2", "p")


def pool(at: int = T0) -> Decider:
    """A pool without nodes that has the works of some jobs."""
    return Decider(POOLS, POOL, at).accept(*(describe(job_id) for job_id in JOBS))


def token(lease: int = 1) -> Token:
    return Token(pool=POOL, lease=lease)


def begun(lease: int = 1, **changes: Any) -> ReportStarted:
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=40)
    report = ReportStarted(token=token(lease), incarnation=ALIVE, start=start)
    said = {name: changes.pop(name) for name in list(changes) if hasattr(start, name)}
    return replace(report, start=replace(start, **said), **changes)


def exited(lease: int = 1, **changes: Any) -> ReportExit:
    whole: dict[str, Any] = {
        "token": token(lease),
        "incarnation": ALIVE,
        "outcome": "preempted",
        "elapsed_ms": 10 * MINUTE,
    }
    return ReportExit(**(whole | changes))


def seen(last_seen: int, silent: bool = False, incarnation: str = ALIVE) -> ObserveNodes:
    observed = NodeSeen(node_id="a", incarnation=incarnation, last_seen=last_seen, silent=silent)
    return ObserveNodes(seen=(observed,))


def freed(lease: int = 1, incarnation: str = ALIVE) -> ConfirmFreed:
    return ConfirmFreed(token=token(lease), node_id="a", incarnation=incarnation)


def close(mode: CloseMode, ended_by: EndAuthor = "tenant") -> ClosePlacement:
    code = ending("cancelled" if ended_by == "tenant" else "preempted")
    request = EndRequest(attempt=1, mode=mode, ended_by=ended_by, reason=code)
    return ClosePlacement(job_id="ftjob-1", request=request)


def end_of(events: tuple[Any, ...]) -> AttemptEnd:
    """How the one placement that these events close has ended."""
    end: AttemptEnd = of(events, PlacementClosed).end
    return end


def member_of(events: tuple[Any, ...]) -> LeaseMember:
    """The one member of the one lease that these events grant."""
    (member,) = of(events, LeaseGranted).members
    assert isinstance(member, LeaseMember)
    return member


def ran_before() -> Decider:
    """A pool whose node has run the first attempt of `ftjob-1`, and is free again."""
    decider, elapsed_ms = running(), 10 * MINUTE
    decider.at += elapsed_ms
    decider.accept(exited(outcome="failed", cause="user", elapsed_ms=elapsed_ms), freed())
    return decider


def running(**changes: Any) -> Decider:
    """Node `a` with 2 slots trains attempt 1 since T0."""
    return pool().accept(node(), request(**changes), begun())


def test_a_placement_gets_a_lease_on_the_node_that_is_left_fullest() -> None:
    decider = pool().accept(node("a", "a-1", 4), node("b", "b-1", 2))
    events = decider.when(request(slots=2))
    assert of(events, LeaseGranted).lease.token == token(1)
    assert member_of(events) == LeaseMember(node_id="b", incarnation="b-1", slots=2, devices=(0, 1))
    events = decider.when(request("ftjob-2", slots=2))
    assert of(events, LeaseGranted).lease.token == token(2)
    assert member_of(events).node_id == "a"
    assert member_of(decider.when(request("ftjob-3"))).devices == (2,)


def test_why_something_waits_is_not_written() -> None:
    """Readers compute it from the queue; with 10,000 jobs it was 64 events a record."""
    decider = pool()
    assert names(decider.when(request())) == ["PlacementQueued"]
    assert names(decider.when(request("ftjob-2", slots=9))) == ["PlacementQueued"]
    assert names(decider.when(node())) == ["NodeRegistered", "LeaseGranted"]
    assert names(decider.when(begun())) == ["LeaseStarted"]


def test_lanes_come_first_then_the_order_of_arrival() -> None:
    decider = pool()
    for job_id, lane in (("f", "free"), ("s1", "standard"), ("s2", "standard"), ("p", "premium")):
        decider.when(request(job_id, lane=lane))
    events = decider.when(node(slots=3))
    assert [e.lease.job_id for e in events if isinstance(e, LeaseGranted)] == ["p", "s1", "s2"]
    assert list(decider.state[POOL].waiting) == ["f"]


def test_an_excluded_node_is_not_used() -> None:
    decider = pool().accept(node("b", "b-1"), request("ftjob-2", slots=2), node())
    assert names(decider.when(request(excluded_nodes=("a",)))) == ["PlacementQueued"]
    assert member_of(decider.when(node("c", "c-1"))).node_id == "c"


def test_an_excluded_node_is_used_when_no_other_fits() -> None:
    decider = pool().accept(node(), node("b", "b-1", slots=1))
    events = decider.when(request(slots=2, excluded_nodes=("a", "x")))
    assert member_of(events).node_id == "a"


def test_a_request_counts_once() -> None:
    decider = pool().accept(request())
    assert decider.when(request()) == ()
    decider.accept(close("drain"))
    assert decider.when(request()) == ()
    assert "PlacementQueued" in names(decider.when(request(attempt=2)))


def test_success_is_billed_from_the_accepted_start_to_the_reported_elapsed_time() -> None:
    decider = running(slots=2)
    decider.at += 25 * MINUTE
    events = decider.when(exited(outcome="succeeded", elapsed_ms=20 * MINUTE, result=TRAINED))
    assert names(events) == ["UsageSliced", "PlacementClosed"]
    closed = end_of(events)
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
    closed = end_of(decider.when(exited(elapsed_ms=reported)))
    assert closed.used_gpu_ms == counted


def test_a_success_without_a_result_is_a_platform_error() -> None:
    closed = end_of(running().when(exited(outcome="succeeded")))
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
    decider = running().accept(exited())
    assert of(decider.when(late), Rejected).code == errors.STALE_TOKEN
    decider.accept(freed())
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
    assert end_of(decider.when(exited(elapsed_ms=9 * MINUTE))).used_gpu_ms == MINUTE


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
    decider = running(slots=2).accept(exited(outcome="failed", cause="user"))
    assert names(decider.when(request("ftjob-2"))) == ["PlacementQueued"]
    wrong = decider.when(freed(incarnation="a-0"))
    assert of(wrong, Rejected).code == errors.STALE_TOKEN
    events = decider.when(freed())
    assert names(events) == ["MemberFreed", "LeaseGranted"]
    assert decider.when(freed()) == ()


def test_slots_confirmed_without_an_exit_end_the_lease_as_a_platform_error() -> None:
    events = running().when(freed())
    closed = end_of(events)
    assert (closed.outcome, closed.cause) == ("failed", "platform")
    assert names(events)[-1] == "MemberFreed"


def test_a_lost_node_ends_its_leases_at_the_last_proof_of_life() -> None:
    decider = running(slots=2)
    decider.at = T0 + 8 * MINUTE
    decider.accept(
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
    closed = end_of(events)
    assert (closed.outcome, closed.used_gpu_ms) == ("lost", 20 * MINUTE)
    assert (closed.billable_gpu_ms, closed.lost_gpu_ms) == (20 * MINUTE, 6 * MINUTE)
    assert of(events, UsageCredited).cause == "lost"
    assert "PlacementQueued" in names(decider.when(request(attempt=2)))
    assert decider.when(seen(T0 + 10 * MINUTE, silent=True)) != events


def test_the_slots_of_a_lost_node_come_back_with_a_new_incarnation() -> None:
    decider = running(slots=2)
    decider.at += MINUTE
    decider.accept(seen(T0 + 1, silent=True), request(attempt=2, slots=2))
    assert names(decider.when(node())) == []
    events = decider.when(node(incarnation="a-2"))
    assert names(events) == ["MemberFreed", "NodeRegistered", "LeaseGranted"]
    assert member_of(events).incarnation == "a-2"
    assert of(decider.when(node(incarnation="a-1")), Rejected).code == errors.STALE_TOKEN


def test_a_node_that_was_silent_and_speaks_again_must_free_its_slots_first() -> None:
    decider = running(slots=2)
    decider.at += MINUTE
    decider.accept(seen(T0 + 1, silent=True), request(attempt=2, slots=2))
    decider.accept(seen(T0 + MINUTE))
    assert decider.state[POOL].nodes["a"].standing == "up"
    assert len(decider.state[POOL].waiting) == 1
    assert names(decider.when(freed())) == ["MemberFreed", "LeaseGranted"]


def test_a_new_incarnation_ends_older_leases_at_their_last_sign_of_life() -> None:
    decider = running()
    decider.at += 5 * MINUTE
    decider.accept(
        ReportCheckpoint(
            token=token(), incarnation=ALIVE, checkpoint=checkpoint(10, captured_ms=4 * MINUTE)
        )
    )
    decider.accept(seen(T0 + 5 * MINUTE))
    decider.at += 20 * MINUTE
    events = decider.when(node(incarnation="a-2"))
    closed = end_of(events)
    assert (closed.outcome, closed.used_gpu_ms, closed.lost_gpu_ms) == (
        "lost",
        5 * MINUTE,
        MINUTE,
    )
    assert names(events)[-2:] == ["MemberFreed", "NodeRegistered"]


def test_a_lease_that_never_started_costs_nothing() -> None:
    decider = pool().accept(node(), request())
    decider.at += 30 * MINUTE
    events = decider.when(seen(T0 + 20 * MINUTE, silent=True))
    closed = end_of(events)
    assert (closed.outcome, closed.used_gpu_ms, closed.lost_gpu_ms) == ("lost", 0, 0)
    assert "UsageSliced" not in names(events)


def test_slices_are_written_when_proof_of_life_passes_their_hour() -> None:
    decider = running()
    decider.at = T0 + 2 * HOUR_MS + 5 * MINUTE
    sliced = [e for e in decider.when(seen(T0 + 2 * HOUR_MS + MINUTE)) if type(e) is UsageSliced]
    assert [line.hour_utc for line in sliced] == [T0 // HOUR_MS, T0 // HOUR_MS + 1]
    assert all(line.used_gpu_ms == HOUR_MS for line in sliced)
    assert names(decider.when(seen(T0 + 2 * HOUR_MS + MINUTE))) == ["NodesObserved"]
    last = end_of(decider.when(exited(elapsed_ms=MINUTE)))
    assert (last.used_gpu_ms, last.billable_gpu_ms - last.lost_gpu_ms) == (MINUTE, MINUTE)


def test_close_takes_a_waiting_placement_out_of_the_queue() -> None:
    decider = pool().accept(request())
    withdraw = close("drain")
    closed = end_of(decider.when(withdraw))
    assert (closed.outcome, closed.node_ids, closed.used_gpu_ms) == ("not_started", (), 0)
    assert decider.when(withdraw) == ()
    assert "LeaseGranted" not in names(decider.when(node()))


def test_close_before_the_start_ends_the_placement_and_keeps_the_slots() -> None:
    decider = pool().accept(node(slots=1), request())
    withdraw = close("drain")
    assert names(decider.when(withdraw)) == ["LeaseKilled", "PlacementClosed"]
    assert of(decider.when(begun()), Rejected).code == errors.STALE_TOKEN
    assert "LeaseGranted" not in names(decider.when(request("ftjob-2")))
    assert names(decider.when(freed())) == ["MemberFreed", "LeaseGranted"]


def test_a_drain_becomes_a_kill_at_its_deadline_and_repeats_only_harden() -> None:
    decider = running()
    drain = close("drain")
    kill = close("kill")
    draining = of(decider.when(drain), LeaseDraining)
    assert (draining.deadline, draining.ended_by) == (T0 + DRAIN_MS, "tenant")
    assert next_tick(POOLS, decider.state) == (T0 + DRAIN_MS, POOL)
    assert decider.when(drain) == ()
    assert decider.when(Tick()) == ()
    decider.at += DRAIN_MS
    assert names(decider.when(Tick())) == ["LeaseKilled"]
    assert decider.when(kill) == decider.when(drain) == ()
    closed = end_of(decider.when(exited(outcome="failed", cause="platform")))
    assert (closed.outcome, closed.cause, closed.lost_gpu_ms) == ("preempted", None, 0)


def test_a_tenant_who_stops_a_job_pays_for_what_ran() -> None:
    decider = running().accept(close("kill"))
    decider.at += 10 * MINUTE
    closed = end_of(decider.when(exited()))
    assert (closed.billable_gpu_ms, closed.lost_gpu_ms) == (10 * MINUTE, 0)


def test_a_cancelled_job_is_not_credited_when_its_node_is_lost_after_the_kill() -> None:
    decider = running()
    decider.at = T0 + 10 * MINUTE
    decider.accept(close("kill"))
    decider.at = T0 + 12 * MINUTE
    closed = end_of(decider.when(seen(T0 + 11 * MINUTE, silent=True)))
    assert closed.outcome == "preempted"
    assert (closed.billable_gpu_ms, closed.lost_gpu_ms) == (10 * MINUTE, 0)


def test_a_node_that_died_before_the_kill_is_credited() -> None:
    decider = running()
    decider.at = T0 + 10 * MINUTE
    decider.accept(close("kill"))
    closed = end_of(decider.when(seen(T0 + 9 * MINUTE, silent=True)))
    assert (closed.outcome, closed.billable_gpu_ms) == ("lost", 9 * MINUTE)
    assert closed.lost_gpu_ms == 9 * MINUTE


def test_slots_confirmed_after_a_kill_are_no_platform_error() -> None:
    decider = running()
    decider.at = T0 + 10 * MINUTE
    decider.accept(seen(T0 + 10 * MINUTE), close("kill"))
    decider.at = T0 + 11 * MINUTE
    closed = end_of(decider.when(freed()))
    assert (closed.outcome, closed.cause) == ("preempted", None)
    assert (closed.billable_gpu_ms, closed.lost_gpu_ms) == (10 * MINUTE, 0)


def test_an_agent_that_leaves_before_the_start_is_no_failure() -> None:
    decider = pool().accept(node(), request())
    closed = end_of(decider.when(exited(outcome="not_started", elapsed_ms=0)))
    assert (closed.outcome, closed.cause) == ("not_started", None)


LOST_BY_AUTHOR: Final[tuple[tuple[EndAuthor, int], ...]] = (
    ("scheduler", 10 * MINUTE),
    ("platform", 10 * MINUTE),
    ("tenant", 0),
)


@pytest.mark.parametrize("mode", ["drain", "kill"])
@pytest.mark.parametrize(("ended_by", "lost"), LOST_BY_AUTHOR)
def test_a_preempted_victim_is_credited_and_a_cancelled_or_paused_job_is_not(
    mode: CloseMode, ended_by: EndAuthor, lost: int
) -> None:
    decider = running()
    decider.at += 10 * MINUTE
    decider.accept(close(mode, ended_by))
    end = end_of(decider.when(exited()))
    assert (end.outcome, end.ended_by) == ("preempted", ended_by)
    assert (end.billable_gpu_ms, end.lost_gpu_ms) == (10 * MINUTE, lost)


def test_the_first_author_stays_the_author_of_the_end() -> None:
    decider = running()
    decider.at += 10 * MINUTE
    decider.accept(close("drain", "scheduler"))
    killed = of(decider.when(close("kill", "tenant")), LeaseKilled)
    assert (killed.ended_by, killed.reason) == ("scheduler", ending("preempted"))
    assert end_of(decider.when(exited())).lost_gpu_ms == 10 * MINUTE


def test_a_work_is_kept_once_until_its_job_has_ended() -> None:
    decider = Decider(POOLS, POOL, T0)
    assert names(decider.when(describe())) == ["WorkKept"]
    assert decider.when(describe()) == ()
    assert names(decider.when(ForgetWork(job_id="ftjob-1"))) == ["WorkForgotten"]
    assert decider.when(ForgetWork(job_id="ftjob-1")) == ()
    assert not decider.state[POOL].works
    assert not decider.state[POOL].attempts


def test_a_work_under_another_hash_is_refused() -> None:
    described = describe()
    wrong = replace(described, description=replace(described.description, work_id="0" * 64))
    assert of(Decider(POOLS, POOL, T0).when(wrong), Rejected).code == errors.MALFORMED


def test_a_placement_of_an_unknown_work_fails_at_once() -> None:
    events = Decider(POOLS, POOL, T0).when(request())
    assert names(events) == ["PlacementQueued", "PlacementClosed"]
    end = end_of(events)
    assert (end.outcome, end.cause, end.reason) == ("failed", "platform", ending("work_unknown"))


def test_a_preemption_by_the_platform_is_credited() -> None:
    decider = running()
    decider.at += 10 * MINUTE
    events = decider.when(exited())
    assert of(events, UsageCredited).cause == "preempted"
    assert end_of(events).lost_gpu_ms == 10 * MINUTE


def test_the_cap_notice_kill_and_outcome() -> None:
    """60 slot-minutes on 2 slots: the notice at 28 minutes, the kill at 30, nothing above."""
    decider = running(slots=2)
    assert of(decider.journal[-2][1], LeaseGranted).notice_ms == 28 * MINUTE
    assert next_tick(POOLS, decider.state) is None
    decider.at = T0 + 28 * MINUTE
    assert names(decider.when(seen(T0 + 28 * MINUTE - 1))) == ["NodesObserved"]
    draining = of(decider.when(seen(T0 + 28 * MINUTE)), LeaseDraining)
    assert (draining.deadline, draining.ended_by) == (T0 + 30 * MINUTE, "budget")
    assert next_tick(POOLS, decider.state) == (T0 + 30 * MINUTE, POOL)
    decider.at = T0 + 30 * MINUTE
    assert names(decider.when(Tick())) == ["LeaseKilled"]
    decider.at = T0 + 31 * MINUTE
    events = decider.when(exited(outcome="preempted", elapsed_ms=31 * MINUTE))
    closed = end_of(events)
    assert (closed.outcome, closed.cause) == ("failed", "budget")
    assert (closed.used_gpu_ms, closed.billable_gpu_ms, closed.lost_gpu_ms) == (
        62 * MINUTE,
        60 * MINUTE,
        0,
    )


def test_a_late_observation_gives_notice_and_kills_at_once() -> None:
    decider = running()
    decider.at = T0 + 90 * MINUTE
    events = names(decider.when(seen(T0 + 90 * MINUTE)))
    assert events == ["NodesObserved", "UsageSliced", "LeaseDraining", "LeaseKilled"]


def test_an_agent_that_never_starts_or_never_reports_does_not_hold_a_job() -> None:
    decider = pool().accept(node(), request())
    decider.at += request().placement.start_ms_max
    closed = end_of(decider.when(Tick()))
    assert (closed.outcome, closed.cause) == ("failed", "platform")
    decider = running().accept(close("kill"))
    decider.at += UNREPORTED_MS_MAX
    closed = end_of(decider.when(Tick()))
    assert (closed.outcome, closed.used_gpu_ms) == ("preempted", 0)
    assert len(decider.state[POOL].leases) == 1  # its slots are not free for that


def test_an_evaluation_is_a_lease_like_any_other() -> None:
    decider = pool().accept(node(), request(role="eval"), begun())
    refused = decider.when(
        ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=checkpoint(1))
    )
    assert of(refused, Rejected).code == errors.ILLEGAL_STATE
    closed = end_of(decider.when(exited(outcome="succeeded", result=SCORED)))
    assert closed.result == SCORED


def test_a_node_leaves_in_order() -> None:
    decider = running().accept(exited(), freed())
    retire = RetireNode(node_id="a", incarnation=ALIVE)
    assert names(decider.when(retire)) == ["NodeRetired"]
    assert decider.when(retire) == ()
    assert names(decider.when(request("ftjob-2"))) == ["PlacementQueued"]
    wrong = decider.when(RetireNode(node_id="a", incarnation="a-9"))
    assert of(wrong, Rejected).code == errors.STALE_TOKEN
    assert decider.when(seen(T0)) == ()


def test_leases_of_a_node_that_retires_are_lost() -> None:
    events = running().when(RetireNode(node_id="a", incarnation=ALIVE))
    assert end_of(events).outcome == "lost"
    assert of(events, MemberFreed).lease.token == token()


def test_malformed_numbers_are_refused() -> None:
    assert of(pool().when(node(slots=0)), Rejected).param == "slots"
    assert of(pool().when(request(slots=0)), Rejected).param == "slots"


def test_observations_of_unknown_nodes_change_nothing() -> None:
    decider = pool().accept(node())
    assert decider.when(seen(T0, incarnation="a-9")) == ()
    assert decider.when(ObserveNodes(seen=())) == ()
    assert of(running().when(seen(T0 + 1, silent=True)), LeaseKilled).ended_by == "node"


def test_money_b3_a_lease_says_on_what_its_price_may_depend() -> None:
    plain = node()
    spot = replace(plain, node=replace(plain.node, accelerator="h1", spot=True))
    granted = pool().accept(spot).when(request())
    hardware = LeaseHardware(device="cpu", accelerator="h1", spot=True)
    assert of(granted, LeaseGranted).lease.hardware == hardware
    assert of(pool().accept(plain).when(request()), LeaseGranted).lease.hardware is None
