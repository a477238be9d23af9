"""An elastic node: leases that wait until its cluster admits them, and slots that change."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Message, Rejected, Tick
from schemas.node import LeaseSeen, NodeResized, NodeSeen, ResizeNode
from schemas.pool import (
    AdmissionCause,
    CheckpointAccepted,
    ClusterWait,
    LeaseGranted,
    LeaseStarted,
    LeaseWaits,
    MemberFreed,
    ObserveNodes,
    PlacementClosed,
    RegisterNode,
    ReportWait,
    UsageSliced,
)
from services.scheduler.domain.pool.admission import CONDITION_MAX, WAIT_MS_LIMIT, WAIT_MS_MAX
from services.scheduler.domain.pool.faults import BACK_OFF_MS
from simulator.control_plane.samples import MINUTE, POOL, T0, node, request
from tests.unit.services.scheduler.domain.pool.test_decide import (
    ALIVE,
    JOBS,
    begun,
    end_of,
    exited,
    freed,
    pool,
    token,
)
from tests.unit.services.scheduler.fold import Decider, names, of
from tests.unit.services.scheduler.joined import Joined

LACKS = "insufficient unused quota for nvidia.com/gpu in flavor h100, 1 more needed"
START_MS_MAX = 10 * MINUTE


def elastic(slots: int = 2, incarnation: str = ALIVE) -> RegisterNode:
    known = node(incarnation=incarnation, slots=slots)
    return replace(known, node=replace(known.node, elastic=True))


def waits(
    lease: int = 1, condition: str = LACKS, cause: AdmissionCause = "quota", by: str = ALIVE
) -> ReportWait:
    wait = ClusterWait(cause=cause, condition=condition)
    return ReportWait(token=token(lease), incarnation=by, wait=wait)


def admitted(lease: int = 1) -> ReportWait:
    return ReportWait(token=token(lease), incarnation=ALIVE)


def resize(slots: int, incarnation: str = ALIVE) -> ResizeNode:
    return ResizeNode(node_id="a", incarnation=incarnation, slots=slots)


def waiting() -> Decider:
    return pool().accept(elastic(), request(), waits())


def refusal(events: tuple[Any, ...]) -> tuple[str, str]:
    (refused,) = events
    assert isinstance(refused, Rejected)
    return refused.code, refused.reason.code


# --- waiting


def test_a_wait_has_the_clusters_words_and_its_beginning() -> None:
    decider = pool().accept(elastic(), request())
    decider.at += MINUTE
    first: LeaseWaits = of(decider.when(waits()), LeaseWaits)
    assert (first.since, first.reason.code) == (T0 + MINUTE, "cluster_admission")
    assert first.reason.params == {"cause": "quota", "condition": LACKS}
    assert decider.when(waits()) == (), "the same words again are no news"
    decider.at += MINUTE
    later: LeaseWaits = of(decider.when(waits(condition="x" * 9_999)), LeaseWaits)
    assert later.since == T0 + MINUTE
    assert len(str(later.reason.params["condition"])) == CONDITION_MAX


def test_a_lease_that_waits_is_not_late_and_goes_back_to_the_queue_after_an_hour() -> None:
    decider = waiting()
    assert decider.due() == T0 + WAIT_MS_MAX
    decider.at = T0 + WAIT_MS_MAX - 1
    assert decider.when(Tick()) == ()
    events = decider.tick()
    assert names(events) == ["LeaseKilled", "PlacementClosed"]
    end = end_of(events)
    assert (end.outcome, end.ended_by, end.cause) == ("not_started", "platform", None)
    assert (end.reason.code, end.used_gpu_ms) == ("not_admitted", 0)


def test_an_agent_that_gives_up_waiting_gives_the_lease_back_for_the_same_reason() -> None:
    end = end_of(waiting().when(exited(outcome="not_started", elapsed_ms=0)))
    assert (end.outcome, end.ended_by, end.reason.code) == (
        *("not_started", "platform", "not_admitted"),
    )


@pytest.mark.parametrize(
    ("said", "limit"),
    [(0, WAIT_MS_MAX), (90_000, 90_000), (10**12, WAIT_MS_LIMIT), (-1, WAIT_MS_MAX)],
)
def test_the_agent_of_a_cluster_says_how_long_a_lease_may_wait(said: int, limit: int) -> None:
    known = elastic()
    described = replace(known, node=replace(known.node, admission_ms_max=said))
    assert pool().accept(described, request(), waits()).due() == T0 + limit


def test_a_job_that_was_given_back_does_not_get_the_same_node_again_at_once() -> None:
    """Another node may have it at once; on this one the back-off grows with each time."""
    jobs = pool().accept(elastic(), request(), waits())
    asks = request()
    for number, back_off_ms in enumerate((*BACK_OFF_MS, BACK_OFF_MS[-1])):
        jobs.accept(exited(number + 1, outcome="not_started", elapsed_ms=0), freed(number + 1))
        attempt = replace(asks.placement, attempt=number + 2)
        assert granted(jobs.when(replace(asks, placement=attempt))) == []
        assert jobs.due() == jobs.at + back_off_ms
        jobs.at += back_off_ms - 1
        assert jobs.when(Tick()) == ()
        assert granted(jobs.tick()) == [asks.placement.job_id]
        jobs.accept(waits(number + 2))
    jobs.accept(exited(5, outcome="not_started", elapsed_ms=0), freed(5))
    assert granted(jobs.when(replace(asks, placement=replace(asks.placement, attempt=6)))) == []
    assert granted(jobs.when(node("b", "b-1", 1))) == [asks.placement.job_id]


def test_a_start_has_its_time_from_the_admission_on() -> None:
    decider = waiting()
    decider.at = T0 + 50 * MINUTE
    assert names(decider.when(admitted())) == ["LeaseAdmitted"]
    assert decider.due() == decider.at + START_MS_MAX
    assert end_of(decider.tick()).reason.code == "start_timeout"


def test_a_lease_waits_once() -> None:
    """A cluster that admits twice, or takes its word back, changes nothing."""
    decider = waiting().accept(admitted())
    assert decider.when(admitted()) == ()
    assert decider.when(waits(condition="no room any more")) == ()
    assert decider.due() == T0 + START_MS_MAX
    decider.accept(begun())
    assert decider.when(waits()) == decider.when(admitted()) == ()


def test_a_lease_whose_process_runs_waits_no_more_whatever_its_agent_says() -> None:
    decider = waiting()
    decider.at += MINUTE
    decider.accept(begun())
    assert decider.due() is None
    assert decider.when(waits(condition="still no room")) == ()
    decider.at += MINUTE
    assert end_of(decider.when(exited(elapsed_ms=MINUTE))).used_gpu_ms == MINUTE


def test_an_admission_without_a_wait_is_no_news() -> None:
    assert pool().accept(elastic(), request()).when(admitted()) == ()


def test_a_lease_on_a_machine_waits_for_no_cluster() -> None:
    decider = pool().accept(node(), request())
    assert refusal(decider.when(waits())) == (errors.ILLEGAL_STATE, "node_not_elastic")
    assert refusal(decider.when(resize(3))) == (errors.ILLEGAL_STATE, "node_not_elastic")


@pytest.mark.parametrize("late", [waits(), admitted(), begun()])
def test_a_lease_that_was_given_back_does_not_run_later(late: Message) -> None:
    decider = waiting()
    decider.tick()
    assert refusal(decider.when(late)) == (errors.STALE_TOKEN, "lease_not_open")
    again = pool().accept(elastic(), request(), waits(), elastic(incarnation="a-2"))
    assert refusal(again.when(late)) == (errors.STALE_TOKEN, "lease_not_open")


def test_a_job_whose_lease_is_given_back_waits_again_and_has_not_failed() -> None:
    joined = Joined(T0)
    known = joined.pool.state[POOL].nodes["a"].description
    joined.to_pool(RegisterNode(node=replace(known, incarnation="b", elastic=True)))
    for number in range(30):  # more often than a job may fail
        lease = joined.lease
        assert lease.ref.attempt > number
        wait = ClusterWait(cause="quota", condition=LACKS)
        joined.to_pool(ReportWait(token=lease.ref.token, incarnation="b", wait=wait))
        joined.wait(WAIT_MS_MAX)
        joined.to_pool(Tick())
        free = replace(freed(lease.number), token=lease.ref.token, incarnation="b")
        joined.to_pool(free)
        joined.wait(BACK_OFF_MS[-1])
        joined.to_pool(Tick())
    assert joined.lease.wait is None
    assert not [event for event in joined.events if type(event).__name__ == "JobEnded"]
    assert joined.rows == {}, "nothing is billed"


# --- slots


def granted(events: tuple[Any, ...]) -> list[str]:
    return [event.lease.job_id for event in events if isinstance(event, LeaseGranted)]


def test_a_quota_that_grows_starts_what_waits() -> None:
    decider = pool().accept(elastic(1), request("ftjob-1"), request("ftjob-2"))
    events = decider.when(resize(2))
    assert names(events)[0] == "NodeResized"
    assert granted(events) == ["ftjob-2"]
    assert decider.when(resize(2)) == ()


def test_a_quota_that_shrinks_ends_nothing_and_starts_nothing_until_all_fits() -> None:
    decider = pool().accept(elastic(3))
    decider.accept(*(request(job_id) for job_id in JOBS[:3]), *map(begun, (1, 2, 3)))
    assert names(decider.when(resize(1))) == ["NodeResized"]
    assert decider.when(request("f"))[1:] == ()
    for lease in (1, 2):  # the third holds a slot that the node does not have any more
        decider.accept(exited(lease))
        assert granted(decider.when(freed(lease))) == []
    decider.accept(exited(3))
    assert granted(decider.when(freed(3))) == ["f"]


def test_a_quota_of_nothing_starts_nothing_and_fails_no_job() -> None:
    decider = pool().accept(elastic(3), resize(0))
    assert names(decider.when(request(slots=3))) == ["PlacementQueued"]
    assert granted(decider.when(resize(3))) == ["ftjob-1"]


def test_a_job_that_the_quota_has_never_had_room_for_fails_at_once() -> None:
    decider = pool().accept(elastic(2), resize(1), elastic(1, incarnation="a-2"))
    assert end_of(decider.when(request(slots=3))).reason.code == "slots_above_largest"
    assert names(decider.when(request("ftjob-2", slots=2))) == ["PlacementQueued"]


def test_slots_are_bounded_and_of_the_agent_that_lives() -> None:
    decider = pool().accept(elastic(2, incarnation="a-2"))
    assert refusal(decider.when(resize(65, "a-2"))) == (errors.MALFORMED, "slots_at_most")
    assert refusal(decider.when(resize(1))) == (errors.STALE_TOKEN, "incarnation_unknown")


# --- whatever agents and clusters say

LEASES = st.integers(1, 6)
STEPS = st.one_of(
    st.builds(request, st.sampled_from(JOBS), st.integers(1, 3), slots=st.integers(1, 3)),
    st.builds(waits, LEASES, st.sampled_from(("", LACKS))),
    st.builds(admitted, LEASES),
    st.builds(begun, LEASES),
    st.builds(exited, LEASES, outcome=st.sampled_from(("not_started", "preempted", "succeeded"))),
    st.builds(freed, LEASES),
    st.builds(resize, st.integers(0, 4)),
    st.integers(1, 4).map(lambda hours: hours * WAIT_MS_MAX // 3),  # time passes
)


@given(st.lists(STEPS, max_size=40))
def test_what_waits_is_not_billed_what_is_given_back_does_not_run_and_no_slot_is_lent_twice(
    steps: list[Any],
) -> None:
    decider = pool().accept(elastic())
    slots, held = 2, dict[int, int]()
    began, over = dict[int, int](), set[int]()
    used = defaultdict[int, int](int)
    of_job = dict[tuple[str, int], int]()
    for step in steps:
        if isinstance(step, int):
            decider.at += step
            elapsed = tuple(
                LeaseSeen(lease=lease, elapsed_ms=decider.at - since)
                for lease, since in began.items()
                if lease not in over
            )
            seen = NodeSeen(
                node_id="a", incarnation=ALIVE, last_seen=decider.at, silent=False, leases=elapsed
            )
            events = (*decider.when(ObserveNodes(seen=(seen,))), *decider.when(Tick()))
        else:
            events = decider.when(step)
        for event in events:
            match event:
                case NodeResized():
                    slots = event.slots
                case LeaseGranted():
                    lease = event.lease.token.lease
                    held[lease] = sum(member.slots for member in event.members)
                    of_job[event.lease.job_id, event.lease.attempt] = lease
                    assert sum(held.values()) <= slots
                case LeaseStarted():
                    assert event.lease.token.lease not in over
                    began[event.lease.token.lease] = decider.at
                case CheckpointAccepted():
                    assert event.lease.token.lease not in over
                case UsageSliced():
                    lease = event.lease.token.lease
                    used[lease] += event.used_gpu_ms
                    assert lease not in over
                    assert used[lease] <= held[lease] * (decider.at - began[lease])
                case PlacementClosed() if (event.job_id, event.attempt) in of_job:
                    over.add(of_job[event.job_id, event.attempt])
                case MemberFreed():
                    del held[event.lease.token.lease]
                case _:
                    pass
    assert decider.refolded() == decider.state
