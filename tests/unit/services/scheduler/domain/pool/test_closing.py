"""A lease with two members: the fold and the closing of leases that today's plan does not make."""

from schemas.node import NodeSeen
from schemas.pool import (
    ConfirmFreed,
    LeaseGranted,
    LeaseMember,
    LeaseRef,
    ObserveNodes,
    ReportCheckpoint,
    WaitExplained,
)
from simulator.control_plane.samples import MINUTE, POOL, T0, TRAINED, checkpoint, node, request
from tests.unit.services.scheduler.domain.pool.test_decide import (
    ALIVE,
    begun,
    end_of,
    exited,
    pool,
    seen,
    token,
)
from tests.unit.services.scheduler.fold import Decider, names, of


def gang() -> Decider:
    """Nodes `a` and `b`, one slot each, run one lease of two members since T0."""
    decider = pool().accept(node("a", "a-1", 1), node("b", "b-1", 1), request(slots=2))
    placement = decider.state[POOL].waiting["ftjob-1"].placement
    granted = LeaseGranted(
        lease=LeaseRef(
            token=token(),
            tenant=placement.tenant,
            job_id=placement.job_id,
            attempt=placement.attempt,
            role=placement.role,
            lane=placement.lane,
            price_version=placement.price_version,
        ),
        members=(
            LeaseMember(node_id="a", incarnation="a-1", slots=1, devices=(0,)),
            LeaseMember(node_id="b", incarnation="b-1", slots=1, devices=(0,)),
        ),
    )
    decider.fold(granted)
    return decider.accept(begun())


def member_freed(node_id: str) -> ConfirmFreed:
    return ConfirmFreed(token=token(), node_id=node_id, incarnation=f"{node_id}-1")


def test_members_are_freed_one_by_one_and_the_lease_goes_with_the_last() -> None:
    decider = gang()
    decider.at += 10 * MINUTE
    end = end_of(decider.when(exited(outcome="succeeded", result=TRAINED)))
    assert (end.node_ids, end.used_gpu_ms) == (("a", "b"), 20 * MINUTE)
    assert of(decider.when(request("ftjob-2", slots=2)), WaitExplained).job_id == "ftjob-2"
    assert names(decider.when(member_freed("a"))) == ["MemberFreed"]
    assert decider.when(member_freed("a")) == ()
    assert names(decider.when(request("ftjob-3"))) == ["PlacementQueued", "LeaseGranted"]
    assert sorted(decider.state[POOL].leases) == ["1", "2"]
    assert names(decider.when(member_freed("b"))) == ["MemberFreed"]
    assert sorted(decider.state[POOL].leases) == ["2"]
    assert decider.refolded() == decider.state


def test_a_gang_lives_as_long_as_every_member() -> None:
    decider = gang()
    decider.at += 10 * MINUTE
    decider.accept(seen(T0 + 10 * MINUTE))
    assert decider.state[POOL].leases["1"].alive_at == T0
    both = (
        NodeSeen(node_id="a", incarnation="a-1", last_seen=T0 + 9 * MINUTE, silent=False),
        NodeSeen(node_id="b", incarnation="b-1", last_seen=T0 + 8 * MINUTE, silent=False),
    )
    decider.accept(ObserveNodes(seen=both))
    assert decider.state[POOL].leases["1"].alive_at == T0 + 8 * MINUTE


def test_a_gang_that_loses_one_node_ends_and_keeps_the_slots_of_the_other() -> None:
    decider = gang()
    decider.at += 10 * MINUTE
    events = decider.when(node("b", "b-2", 1))
    assert (
        names(events)
        == [
            "UsageSliced",
            "UsageCredited",
            "PlacementClosed",
            "MemberFreed",
            "NodeRegistered",
        ][2 if not decider.state[POOL].leases["1"].used_gpu_ms else 0 :]
    )
    assert (end_of(events).outcome, end_of(events).ended_by) == ("lost", "node")
    assert of(decider.when(request("ftjob-2", slots=1)), LeaseGranted).members[0].node_id == "b"
    assert names(decider.when(member_freed("a"))) == ["MemberFreed"]


def test_money_c8_no_capture_is_later_than_the_end_so_no_credit_is_larger_than_the_bill() -> None:
    """Finding C8: an exit below an accepted capture, whose checkpoint is skipped later."""
    decider = pool().accept(node(), request(), begun())
    decider.at += 10 * MINUTE
    saved = checkpoint(10, captured_ms=9 * MINUTE)
    decider.accept(ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=saved))
    end = end_of(decider.when(exited(outcome="failed", cause="platform", elapsed_ms=MINUTE)))
    assert (end.used_gpu_ms, end.billable_gpu_ms, end.lost_gpu_ms) == (9 * MINUTE, 9 * MINUTE, 0)


def test_both_nodes_of_a_gang_lost_together_end_it_once() -> None:
    decider = gang()
    decider.at += 10 * MINUTE
    silent = tuple(
        NodeSeen(node_id=name, incarnation=f"{name}-1", last_seen=T0 + MINUTE, silent=True)
        for name in ("a", "b")
    )
    events = decider.when(ObserveNodes(seen=silent))
    assert names(events).count("NodeLost") == 2
    end = end_of(events)
    assert (end.outcome, end.used_gpu_ms, end.lost_gpu_ms) == ("lost", 2 * MINUTE, 2 * MINUTE)
