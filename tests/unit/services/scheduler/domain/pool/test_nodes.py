"""Nodes start, leave and are observed: which leases end by it, and which node may speak."""

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected
from schemas.pool import (
    IdleLease,
    LeaseKilled,
    NodeLost,
    NodeSeen,
    ObserveNodes,
    RetireNode,
    UsageSliced,
)
from schemas.units import HOUR_MS
from simulator.control_plane.samples import MINUTE, POOL, T0, node, request
from tests.unit.services.scheduler.domain.pool.test_decide import begun, end_of, pool
from tests.unit.services.scheduler.fold import Decider, names, of


def running() -> Decider:
    """Lease 1 runs on node `a` since T0."""
    return pool().accept(node("a", "a-1", 2), request(), begun())


def observed(last_seen: int, incarnation: str = "a-1", **fields: object) -> ObserveNodes:
    entry = NodeSeen(node_id="a", incarnation=incarnation, last_seen=last_seen, silent=False)
    return ObserveNodes(seen=(replace(entry, **fields),))


def test_a_repeated_registration_changes_nothing() -> None:
    decider = running()
    assert decider.when(node("a", "a-1", 2)) == ()
    assert decider.when(node("a", "a-1", 4)) == ()


def test_a_new_incarnation_ends_and_frees_what_the_old_one_ran() -> None:
    decider = running()
    decider.at += MINUTE
    events = decider.when(node("a", "a-2", 2))
    assert names(events)[-2:] == ["MemberFreed", "NodeRegistered"]
    end = end_of(events)
    assert (end.outcome, end.ended_by, end.reason.code) == ("lost", "node", "node_replaced")
    assert (end.used_gpu_ms, end.billable_gpu_ms) == (0, 0)  # no proof of life since the start


def test_an_incarnation_that_was_replaced_may_not_come_back() -> None:
    decider = running()
    decider.accept(node("a", "a-2", 2))
    (refused,) = decider.when(node("a", "a-1", 2))
    assert isinstance(refused, Rejected)
    assert refused.code == errors.STALE_TOKEN
    (unknown,) = decider.when(RetireNode(node_id="a", incarnation="a-1"))
    assert isinstance(unknown, Rejected)
    assert unknown.code == errors.STALE_TOKEN


@pytest.mark.parametrize("slots", [0, -1])
def test_a_node_without_slots_is_refused(slots: int) -> None:
    (refused,) = pool().when(node("a", "a-1", slots))
    assert isinstance(refused, Rejected)
    assert (refused.code, refused.param) == (errors.MALFORMED, "slots")


def test_a_node_that_leaves_ends_its_leases_once() -> None:
    decider = running()
    leave = RetireNode(node_id="a", incarnation="a-1")
    events = decider.when(leave)
    assert end_of(events).reason.code == "node_left"
    assert names(events)[-2:] == ["MemberFreed", "NodeRetired"]
    assert decider.when(leave) == ()
    assert not decider.state[POOL].leases
    (unknown,) = decider.when(RetireNode(node_id="b", incarnation="b-1"))
    assert isinstance(unknown, Rejected)


@pytest.mark.parametrize(
    "command", [observed(T0, "a-0"), observed(T0, node_id="b"), ObserveNodes(seen=())]
)
def test_what_is_seen_of_unknown_nodes_is_no_event(command: ObserveNodes) -> None:
    assert running().when(command) == ()


def test_a_node_that_left_is_not_observed_any_more() -> None:
    decider = running().accept(RetireNode(node_id="a", incarnation="a-1"))
    assert decider.when(observed(T0 + MINUTE)) == ()


def test_silence_kills_and_ends_every_lease_at_the_last_proof_of_life() -> None:
    decider = running()
    decider.at += 10 * MINUTE
    events = decider.when(observed(T0 + 4 * MINUTE, silent=True))
    assert names(events)[:3] == ["NodesObserved", "NodeLost", "LeaseKilled"]
    assert of(events, NodeLost).last_seen == T0 + 4 * MINUTE
    end = end_of(events)
    assert (end.outcome, end.used_gpu_ms) == ("lost", 4 * MINUTE)
    decider.at += MINUTE
    assert names(decider.when(observed(T0 + 4 * MINUTE, silent=True))) == ["NodesObserved"]


def test_each_full_hour_that_a_lease_has_lived_through_is_sliced_once() -> None:
    decider = running()
    next_hour = (T0 // HOUR_MS + 1) * HOUR_MS
    decider.at = next_hour + MINUTE
    assert names(decider.when(observed(next_hour - 1))) == ["NodesObserved"]
    events = decider.when(observed(next_hour))
    sliced = of(events, UsageSliced)
    assert (sliced.hour_utc, sliced.used_gpu_ms) == (T0 // HOUR_MS, next_hour - T0)
    assert names(decider.when(observed(next_hour + MINUTE))) == ["NodesObserved"]


def test_a_lease_that_makes_no_progress_is_killed_and_one_that_is_unknown_is_not() -> None:
    decider = running()
    decider.at += 60 * MINUTE
    idle_ms = 10**9
    unknown = (IdleLease(lease=7, idle_ms=idle_ms),)
    assert "LeaseKilled" not in names(decider.when(observed(T0 + MINUTE, idle=unknown)))
    events = decider.when(observed(T0 + 2 * MINUTE, idle=(IdleLease(lease=1, idle_ms=idle_ms),)))
    assert of(events, LeaseKilled).reason.code == "no_progress"
    end = end_of(events)
    assert (end.outcome, end.cause) == ("failed", "bad_node")


def test_one_command_may_observe_several_nodes() -> None:
    decider = running().accept(node("b", "b-1", 1), request("ftjob-2"))
    both = ObserveNodes(
        seen=tuple(
            NodeSeen(node_id=name, incarnation=f"{name}-1", last_seen=T0, silent=True)
            for name in ("a", "b")
        )
    )
    events = decider.when(both)
    assert [event.node_id for event in events if isinstance(event, NodeLost)] == ["a", "b"]
    assert decider.refolded() == decider.state
