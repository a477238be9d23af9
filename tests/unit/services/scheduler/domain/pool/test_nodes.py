"""What is seen of a node: leases are billed by the elapsed time that its agent says."""

from schemas.pool import (
    LeaseKilled,
    LeaseSeen,
    NodeSeen,
    ObserveNodes,
    ReportCheckpoint,
    UsageSliced,
)
from schemas.units import HOUR_MS
from services.scheduler.domain.pool.deadlines import earliest
from services.scheduler.domain.pool.nodes import UNLISTED_MS_MIN
from simulator.control_plane.samples import MINUTE, T0, TRAINED, checkpoint
from tests.unit.services.scheduler.domain.pool.test_decide import (
    ALIVE,
    end_of,
    exited,
    freed,
    running,
    token,
)
from tests.unit.services.scheduler.fold import names, of

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
