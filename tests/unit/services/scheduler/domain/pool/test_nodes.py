"""What is seen of a node: leases are billed by the elapsed time that its agent says."""

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected
from schemas.pool import (
    LeaseKilled,
    LeaseSeen,
    NodeLost,
    NodeSeen,
    ObserveNodes,
    ReportCheckpoint,
    RetireNode,
    UsageSliced,
)
from schemas.units import HOUR_MS
from services.scheduler.domain.pool.deadlines import earliest
from services.scheduler.domain.pool.nodes import UNLISTED_MS_MIN
from simulator.control_plane.samples import MINUTE, POOL, T0, TRAINED, checkpoint, node, request
from tests.unit.services.scheduler.domain.pool.test_decide import (
    ALIVE,
    begun,
    end_of,
    exited,
    freed,
    pool,
    running,
    token,
)
from tests.unit.services.scheduler.fold import Decider, names, of

SECOND = 1_000


def listed(last_seen: int, elapsed_ms: int, silent: bool = False) -> ObserveNodes:
    """Lease 1 has run for so long, by its agent's clock."""
    observed = NodeSeen(
        node_id="a",
        incarnation=ALIVE,
        last_seen=last_seen,
        silent=silent,
        leases=(LeaseSeen(lease=1, elapsed_ms=elapsed_ms),),
    )
    return ObserveNodes(seen=(observed,))


def unlisted(last_seen: int) -> ObserveNodes:
    observed = NodeSeen(
        node_id="a", incarnation=ALIVE, last_seen=last_seen, silent=False, leases=()
    )
    return ObserveNodes(seen=(observed,))


def test_money_a1_303_seconds_of_work_after_three_hours_of_sleep_cost_303_seconds() -> None:
    """Finding A1: the machine and its agent's clock slept while the broker's time ran."""
    decider = running()
    decider.at += 5 * MINUTE
    saved = checkpoint(5, captured_ms=5 * MINUTE)
    decider.accept(ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=saved))
    decider.at += 3 * HOUR_MS
    assert earliest(decider.state) is None  # no deadline ends what is not known to have run
    assert names(decider.when(listed(decider.at, 301 * SECOND))) == ["NodesObserved"]
    decider.at += 2 * SECOND
    end = end_of(decider.when(exited(outcome="succeeded", result=TRAINED, elapsed_ms=303 * SECOND)))
    assert (end.outcome, end.used_gpu_ms, end.billable_gpu_ms, end.lost_gpu_ms) == (
        "succeeded",
        303 * SECOND,
        303 * SECOND,
        0,
    )


def test_money_a1_an_exit_in_an_outage_is_billed_to_the_exit() -> None:
    """Finding A1: the first heartbeat after the outage comes before the report of the exit."""
    decider = running()
    decider.at += 2 * HOUR_MS + 5 * MINUTE
    assert names(decider.when(listed(decider.at, 20 * MINUTE))) == ["NodesObserved"]
    decider.at += 4 * SECOND
    end = end_of(decider.when(exited(outcome="succeeded", result=TRAINED, elapsed_ms=20 * MINUTE)))
    assert end.billable_gpu_ms == 20 * MINUTE


def test_money_a1_a_lease_that_its_agent_does_not_list_is_not_alive() -> None:
    """Finding A1: its attempt died, its agent lives. It is billed to its last proof."""
    decider = running()
    decider.at += 3 * MINUTE
    decider.accept(listed(decider.at, 3 * MINUTE))
    decider.at += HOUR_MS
    events = decider.when(unlisted(decider.at))
    end = end_of(events)
    assert (end.outcome, end.cause, end.used_gpu_ms) == ("failed", "platform", 3 * MINUTE)
    assert end.lost_gpu_ms == end.billable_gpu_ms
    assert of(events, LeaseKilled).ended_by == "node"
    assert names(decider.when(unlisted(decider.at))) == ["NodesObserved"]
    assert names(decider.when(freed())) == ["MemberFreed"]


def test_a_heartbeat_from_before_the_start_could_not_list_the_lease() -> None:
    decider = running()
    decider.at += UNLISTED_MS_MIN
    assert names(decider.when(unlisted(T0 + UNLISTED_MS_MIN - 1))) == ["NodesObserved"]
    assert "PlacementClosed" in names(decider.when(unlisted(T0 + UNLISTED_MS_MIN)))


def test_hours_are_sliced_up_to_the_smaller_of_both_clocks() -> None:
    decider = running(max_gpu_ms=9 * HOUR_MS)
    decider.at += 2 * HOUR_MS + MINUTE
    slow = decider.when(listed(decider.at, 2 * HOUR_MS - MINUTE))
    assert of(slow, UsageSliced).used_gpu_ms == HOUR_MS
    fast = decider.when(listed(decider.at, 8 * HOUR_MS))
    assert of(fast, UsageSliced).used_gpu_ms == HOUR_MS
    assert decider.refolded() == decider.state


def test_a_lost_node_is_billed_to_what_its_agent_last_said() -> None:
    decider = running()
    decider.at += 2 * HOUR_MS
    end = end_of(decider.when(listed(decider.at - MINUTE, 7 * MINUTE, silent=True)))
    assert (end.outcome, end.used_gpu_ms) == ("lost", 7 * MINUTE)


def test_a_watcher_without_heartbeats_leaves_what_the_agent_said() -> None:
    """Seed 1279 of the control plane: a new watcher knows a frozen node from its registration."""
    decider = running().accept(listed(T0, 0))
    decider.at += 2 * HOUR_MS
    decider.accept(listed(decider.at, 7 * MINUTE))
    silent = NodeSeen(node_id="a", incarnation=ALIVE, last_seen=T0, silent=True)
    end = end_of(decider.when(ObserveNodes(seen=(silent,))))
    assert (end.outcome, end.used_gpu_ms) == ("lost", 7 * MINUTE)


# --- nodes start, leave and are observed ----------------------------------------------------------


def started() -> Decider:
    """Lease 1 runs on node `a` since T0."""
    return pool().accept(node("a", "a-1", 2), request(), begun())


def observed(last_seen: int, incarnation: str = "a-1", **fields: object) -> ObserveNodes:
    entry = NodeSeen(node_id="a", incarnation=incarnation, last_seen=last_seen, silent=False)
    return ObserveNodes(seen=(replace(entry, **fields),))


def test_a_repeated_registration_changes_nothing() -> None:
    decider = started()
    assert decider.when(node("a", "a-1", 2)) == ()
    assert decider.when(node("a", "a-1", 4)) == ()


def test_a_new_incarnation_ends_and_frees_what_the_old_one_ran() -> None:
    decider = started()
    decider.at += MINUTE
    events = decider.when(node("a", "a-2", 2))
    assert names(events)[-2:] == ["MemberFreed", "NodeRegistered"]
    end = end_of(events)
    assert (end.outcome, end.ended_by, end.reason.code) == ("lost", "node", "node_replaced")
    assert (end.used_gpu_ms, end.billable_gpu_ms) == (0, 0)  # no proof of life since the start


def test_an_incarnation_that_was_replaced_may_not_come_back() -> None:
    decider = started()
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
    decider = started()
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
    assert started().when(command) == ()


def test_a_node_that_left_is_not_observed_any_more() -> None:
    decider = started().accept(RetireNode(node_id="a", incarnation="a-1"))
    assert decider.when(observed(T0 + MINUTE)) == ()


def test_one_command_may_observe_several_nodes() -> None:
    decider = started().accept(node("b", "b-1", 1), request("ftjob-2"))
    both = ObserveNodes(
        seen=tuple(
            NodeSeen(node_id=name, incarnation=f"{name}-1", last_seen=T0, silent=True)
            for name in ("a", "b")
        )
    )
    events = decider.when(both)
    assert [event.node_id for event in events if isinstance(event, NodeLost)] == ["a", "b"]
    assert decider.refolded() == decider.state
