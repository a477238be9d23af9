"""A process that lives and makes no progress: given what it began with, when it is idle."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.envelope import Tick
from schemas.job import PlacementWanted
from schemas.node import IdleLease, LeaseSeen, NodeSeen
from schemas.pool import (
    LeaseKilled,
    NodesObserved,
    ObserveNodes,
    PlacementClosed,
    ReportCheckpoint,
    UsageCredited,
    UsageSliced,
)
from services.scheduler.app import POOLS
from simulator.control_plane.samples import BASE, MINUTE, POOL, T0, checkpoint, node, request
from tests.ticks import next_tick
from tests.unit.services.scheduler.domain.pool.test_decide import (
    ALIVE,
    begun,
    close,
    end_of,
    exited,
    freed,
    member_of,
    pool,
    token,
)
from tests.unit.services.scheduler.fold import Decider, names, of
from tests.unit.services.scheduler.joined import Joined
from tunery.plan.time import start_ms_max

SHARE_MS = 60 * MINUTE // 40  # of one of 40 steps, of an hour on one slot


def idle(idle_ms: int, lease: int = 1, incarnation: str = ALIVE) -> ObserveNodes:
    observed = NodeSeen(
        node_id="a",
        incarnation=incarnation,
        last_seen=T0 + 20 * MINUTE,
        silent=False,
        idle=(IdleLease(lease=lease, idle_ms=idle_ms),),
    )
    return ObserveNodes(seen=(observed,))


def running(**changes: Any) -> Decider:
    """Node `a` trains since T0; 20 minutes later."""
    decider = pool().accept(node(), request(**changes), begun())
    decider.at += 20 * MINUTE
    return decider


def test_a_stuck_process_is_killed_and_unsaved_work_is_credited() -> None:
    saved = checkpoint(5, captured_ms=4 * MINUTE)
    decider = pool().accept(node(), request(), begun())
    decider.at += 5 * MINUTE
    decider.accept(ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=saved))
    decider.at += 15 * MINUTE
    events = decider.when(idle(15 * MINUTE))
    assert of(events, LeaseKilled).ended_by == "node"
    assert of(events, UsageSliced).billable_gpu_ms == 20 * MINUTE
    credit = of(events, UsageCredited)
    assert (credit.cause, credit.lost_gpu_ms) == ("bad_node", 16 * MINUTE)
    end = end_of(events)
    assert (end.outcome, end.cause, end.node_ids) == ("failed", "bad_node", ("a",))
    assert names(decider.when(exited())) == ["Rejected"]  # the kill's own echo
    assert names(decider.when(freed())) == ["MemberFreed"]


def test_the_job_of_a_stuck_process_resumes_on_another_node() -> None:
    decider = running()
    decider.when(idle(15 * MINUTE))
    decider.accept(node("b", "b-1"))
    events = decider.when(request(attempt=2, excluded_nodes=("a",)))
    assert member_of(events).node_id == "b"


@pytest.mark.parametrize(("idle_ms", "ends"), [(SHARE_MS, False), (SHARE_MS + 1, True)])
def test_a_step_may_take_its_share_of_the_cap(idle_ms: int, ends: bool) -> None:
    events = running().when(idle(idle_ms))
    assert any(isinstance(event, PlacementClosed) for event in events) is ends


def test_remaining_steps_share_the_cap_and_evaluations_have_no_steps() -> None:
    resumed = pool().accept(node(), request(), begun(loaded_step=39))
    assert names(resumed.when(idle(60 * MINUTE))) == ["NodesObserved"]
    scoring = pool().accept(node(), request(role="eval"), begun(total_steps=0))
    assert end_of(scoring.when(idle(1))).cause == "bad_node"


def test_a_stuck_lease_is_ended_once() -> None:
    decider = running().accept(idle(15 * MINUTE))
    assert names(decider.when(idle(30 * MINUTE))) == ["NodesObserved"]


@pytest.mark.parametrize(
    "observed", [idle(15 * MINUTE, lease=9), idle(15 * MINUTE, incarnation="a-9")]
)
def test_other_leases_are_not_ended(observed: ObserveNodes) -> None:
    assert set(names(running().when(observed))) <= {NodesObserved.__name__}


def test_unstarted_and_ending_leases_have_other_deadlines() -> None:
    waiting = pool().accept(node(), request())
    assert names(waiting.when(idle(15 * MINUTE))) == ["NodesObserved"]
    drained = running().accept(close("drain"))
    assert names(drained.when(idle(15 * MINUTE))) == ["NodesObserved"]


def test_a_restart_folds_to_the_same_state() -> None:
    decider = running().accept(idle(15 * MINUTE), freed())
    assert decider.refolded() == decider.state


def test_sched_b13_a_large_base_model_has_time_to_be_read() -> None:
    """Finding B13: 70 billion parameters need 620 seconds, and the limit was 600 for all."""
    large = replace(BASE, parameters=70_000_000_000)
    limit_ms = start_ms_max(large)
    assert limit_ms > 3 * 600_000
    decider = pool().accept(node(), request(start_ms_max=limit_ms))
    assert next_tick(POOLS, decider.state) == (T0 + limit_ms, POOL)
    decider.at += 20 * MINUTE
    assert names(decider.when(Tick())) == []
    assert names(decider.when(begun())) == ["LeaseStarted"]


def test_sched_b13_the_limit_of_a_job_follows_from_its_base() -> None:
    for parameters, minutes in ((135_000_000, 10), (8_000_000_000, 10), (70_000_000_000, 31)):
        limit_ms = start_ms_max(replace(BASE, parameters=parameters))
        assert limit_ms // MINUTE == minutes
    submitted = Joined(T0)
    wanted = of(tuple(submitted.events), PlacementWanted)
    assert wanted.placement.start_ms_max == start_ms_max(BASE) == 10 * MINUTE


def preparing(prepared_bytes: int, incarnation: str = ALIVE) -> ObserveNodes:
    """Its agent lists the lease, which has not started."""
    listed = LeaseSeen(lease=1, elapsed_ms=0, prepared_bytes=prepared_bytes)
    seen = NodeSeen(
        node_id="a", incarnation=incarnation, last_seen=T0, silent=False, leases=(listed,)
    )
    return ObserveNodes(seen=(seen,))


def granted() -> Decider:
    return pool().accept(node(), request())


def test_sched_b13_preparing_is_progress_that_extends_the_limit() -> None:
    """Finding B13: a slow disk was ended in the middle of its read, and again on every node."""
    decider = granted()
    for minute in range(2, 30, 2):
        decider.at = T0 + minute * MINUTE
        decider.accept(preparing(minute * 10**9), Tick())
    assert names(decider.when(begun())) == ["LeaseStarted"]
    assert next_tick(POOLS, decider.state) is None


def test_sched_b13_a_preparation_that_stalls_is_ended() -> None:
    decider = granted()
    for minute in (4, 8, 12, 16):
        decider.at = T0 + minute * MINUTE
        decider.accept(preparing(min(minute, 8) * 10**9), Tick())
    assert next_tick(POOLS, decider.state) == (T0 + 18 * MINUTE, POOL), (
        "ten minutes after the last byte"
    )
    decider.at = T0 + 18 * MINUTE
    end = end_of(decider.when(Tick()))
    assert (end.outcome, end.cause, end.reason.code) == ("failed", "platform", "start_timeout")
    assert end.used_gpu_ms == 0


def test_sched_b13_a_preparation_without_end_has_a_last_limit() -> None:
    """An agent that counts for ever holds its slots no longer than four times the limit."""
    decider, read = granted(), 0
    while (due := next_tick(POOLS, decider.state)) is not None and due[0] > decider.at:
        decider.at += MINUTE
        read += 1
        decider.accept(preparing(read))
    assert decider.at == T0 + 40 * MINUTE
    assert end_of(decider.when(Tick())).reason.code == "start_timeout"


def test_sched_b13_only_the_agent_of_the_lease_extends_its_limit() -> None:
    decider = granted()
    decider.at += 5 * MINUTE
    decider.when(preparing(10**9, incarnation="a-0"))
    assert next_tick(POOLS, decider.state) == (T0 + 10 * MINUTE, POOL)
