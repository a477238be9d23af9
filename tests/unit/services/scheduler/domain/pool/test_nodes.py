"""Observations of nodes: leases are billed by the elapsed time that their agent reports."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Message, Rejected, Tick
from schemas.node import (
    CordonNode,
    DrainNode,
    ForgetNode,
    JoinNode,
    LeaseSeen,
    LeaveNode,
    NodeDescription,
    NodeSeen,
    NoticeNode,
)
from schemas.pool import (
    ForgetWork,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    NodeLost,
    ObserveNodes,
    PlacementClosed,
    ReportCheckpoint,
    RetireNode,
    Token,
    UsageCredited,
    UsageSliced,
)
from schemas.streams import MESSAGE_BYTES_MAX
from schemas.units import HOUR_MS
from services.scheduler.app import POOLS
from services.scheduler.domain.liveness import OBSERVED_MAX
from services.scheduler.domain.pool.deadlines import LOST_KEPT_MS, RETIRED_KEPT_MS
from services.scheduler.domain.pool.nodes import NODE_SLOTS_MAX, UNLISTED_MS_MIN
from services.scheduler.domain.pool.state import (
    Lease,
    Node,
    NodeFailure,
    Pool,
    Waiting,
    keys_by_node,
    lease_key,
)
from services.scheduler.domain.pool.usage import ChargedHour
from simulator.control_plane.samples import MINUTE, POOL, T0, TRAINED, checkpoint, node, request
from tests.ticks import next_tick
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
    assert next_tick(POOLS, decider.state) is None  # no deadline ends what is not known to have run
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


def test_bad_input_of_two_agents_with_one_name_the_second_has_the_node() -> None:
    """What the first one ran ends with a credit; whatever it says later is stale."""
    decider = pool().accept(node(slots=1), request(), begun())
    decider.at += 5 * MINUTE
    decider.accept(listed(decider.at, 5 * MINUTE))
    events = decider.when(node("a", "a-2", 1))
    assert names(events)[-2:] == ["MemberFreed", "NodeRegistered"]
    assert (end_of(events).outcome, end_of(events).lost_gpu_ms) == ("lost", 5 * MINUTE)
    decider.accept(request("ftjob-2"))
    for late in (exited(), node("a", ALIVE, 1), LeaveNode(node_id="a", incarnation=ALIVE)):
        (refused,) = decider.when(late)
        assert refused.code == errors.STALE_TOKEN
    (lease,) = decider.state[POOL].leases.values()
    assert (lease.ref.job_id, lease.members[0].incarnation) == ("ftjob-2", "a-2")


def test_sched_a16_a_leaving_node_gets_nothing_and_jobs_keep_their_place() -> None:
    """Finding A16: slots that a leaving agent freed were granted, and their jobs thrown back."""
    decider = pool().accept(node(slots=1), request(), begun(), request("ftjob-2"))
    decider.accept(LeaveNode(node_id="a", incarnation=ALIVE))
    assert names(decider.when(LeaveNode(node_id="a", incarnation=ALIVE))) == []
    decider.accept(exited(), freed())
    assert not [lease for lease in decider.state[POOL].leases.values() if not lease.closed]
    decider.accept(RetireNode(node_id="a", incarnation=ALIVE))
    (waiting,) = decider.state[POOL].waiting.values()
    assert (waiting.placement.job_id, waiting.placement.attempt) == ("ftjob-2", 1)
    assert of(decider.when(node("a", "a-2", 1)), LeaseGranted).lease.job_id == "ftjob-2"


def notice(left_ms: int, incarnation: str = ALIVE) -> NoticeNode:
    return NoticeNode(node_id="a", incarnation=incarnation, left_ms=left_ms)


@pytest.mark.parametrize(("left_ms", "until_ms"), [(120_000, 118_000), (30_000, 28_000), (0, 0)])
def test_a_noticed_node_gets_nothing_new_and_what_runs_has_the_time_that_is_left(
    left_ms: int, until_ms: int
) -> None:
    decider = pool().accept(node(slots=2), request(), begun(), request("ftjob-2"))
    decider.at += 5 * MINUTE
    events = decider.when(notice(left_ms))
    assert names(events) == ["NodeNoticed", "LeaseDraining", "LeaseKilled", "PlacementClosed"]
    assert events[0].ends_at == decider.at + left_ms
    assert of(events, LeaseDraining).deadline == decider.at + until_ms
    assert (end_of(events).outcome, end_of(events).reason.code) == ("not_started", "node_noticed")
    assert names(decider.when(request("ftjob-3"))) == ["PlacementQueued"]
    assert decider.when(notice(left_ms)) == (), "it is told once"
    assert decider.refolded() == decider.state


def test_work_that_a_notice_ends_is_credited_since_its_last_checkpoint() -> None:
    decider = pool().accept(node(), request(), begun())
    decider.at += 5 * MINUTE
    saved = checkpoint(5, captured_ms=4 * MINUTE)
    decider.accept(ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=saved))
    decider.accept(notice(30_000))
    events = decider.when(exited(outcome="preempted", elapsed_ms=5 * MINUTE, result=None))
    assert (end_of(events).outcome, end_of(events).ended_by) == ("preempted", "node")
    assert (of(events, UsageCredited).cause, end_of(events).lost_gpu_ms) == ("preempted", MINUTE)


def test_a_machine_that_is_gone_before_its_checkpoint_is_credited_as_lost() -> None:
    decider = pool().accept(node(), request(), begun())
    decider.at += 5 * MINUTE
    decider.accept(listed(decider.at, 5 * MINUTE), notice(30_000))
    decider.at += MINUTE
    events = decider.when(listed(decider.at - MINUTE, 5 * MINUTE, silent=True))
    assert end_of(events).outcome == "lost"
    assert end_of(events).lost_gpu_ms == end_of(events).billable_gpu_ms > 0


def test_a_machine_that_comes_back_after_its_notice_gets_leases_again() -> None:
    decider = pool().accept(node(slots=1), notice(0), node("a", "a-2", 1))
    assert of(decider.when(request()), LeaseGranted).members[0].incarnation == "a-2"
    (refused,) = decider.when(notice(0))
    assert (refused.code, refused.reason.code) == (errors.STALE_TOKEN, "incarnation_unknown")


def test_a_node_that_joins_gets_leases_once_its_agent_has_caught_up() -> None:
    decider = pool().accept(replace(node(slots=1), joins=True))
    assert names(decider.when(request())) == ["PlacementQueued"]
    joined = decider.when(JoinNode(node_id="a", incarnation=ALIVE))
    assert names(joined) == ["NodeJoined", "LeaseGranted"]
    assert decider.when(JoinNode(node_id="a", incarnation=ALIVE)) == ()


@pytest.mark.parametrize("kind", [JoinNode, LeaveNode])
def test_only_the_agent_of_a_node_joins_and_leaves(kind: type[JoinNode | LeaveNode]) -> None:
    (refused,) = pool().accept(node()).when(kind(node_id="a", incarnation="a-9"))
    assert (refused.code, refused.reason.code) == (errors.STALE_TOKEN, "incarnation_unknown")


def test_a_node_has_no_more_slots_than_one_record_can_end() -> None:
    (refused,) = pool().when(node(slots=NODE_SLOTS_MAX + 1))
    assert (refused.code, refused.reason.code) == (errors.MALFORMED, "slots_at_most")


def test_a_drained_node_gives_its_work_back_with_a_credit_and_gets_nothing_new() -> None:
    decider = pool().accept(node(slots=2), request(), begun(), request("ftjob-2"))
    decider.at += 5 * MINUTE
    events = decider.when(DrainNode(node_id="a"))
    assert names(events) == ["NodeCordoned", "LeaseDraining", "LeaseKilled", "PlacementClosed"]
    assert (of(events, LeaseDraining).ended_by, end_of(events).outcome) == (
        "platform",
        "not_started",
    )
    assert decider.when(DrainNode(node_id="a")) == ()
    ended = decider.when(exited(elapsed_ms=6 * MINUTE))
    assert (end_of(ended).outcome, end_of(ended).ended_by) == ("preempted", "platform")
    assert end_of(ended).lost_gpu_ms == end_of(ended).billable_gpu_ms > 0, "it had no checkpoint"
    assert names(decider.when(request("ftjob-3"))) == ["PlacementQueued"]


def test_a_node_in_service_is_not_forgotten_and_a_lost_one_with_all_that_it_held() -> None:
    decider = running()
    (refused,) = decider.when(ForgetNode(node_id="a"))
    assert (refused.code, refused.reason.code) == (errors.ILLEGAL_STATE, "node_in_service")
    decider.at += MINUTE
    decider.accept(listed(T0, 0, silent=True))
    assert names(decider.when(ForgetNode(node_id="a"))) == ["MemberFreed", "NodeForgotten"]
    state = decider.state[POOL]
    assert (len(state.nodes), len(state.leases)) == (0, 0)
    assert decider.refolded() == decider.state


def test_nodes_that_are_gone_are_forgotten_in_time() -> None:
    decider = pool().accept(node("a"), node("b", "b-1"))
    decider.accept(RetireNode(node_id="a", incarnation=ALIVE))
    due = next_tick(POOLS, decider.state)
    assert due == (T0 + RETIRED_KEPT_MS, POOL)
    decider.at = T0 + RETIRED_KEPT_MS
    assert names(decider.when(Tick())) == ["NodeForgotten"]
    assert list(decider.state[POOL].nodes) == ["b"]
    assert next_tick(POOLS, decider.state) is None


def test_review2_w1_a_node_that_is_found_lost_after_a_long_pause_of_all_is_kept() -> None:
    """Seed 73000534 of the simulator: after weeks without a tick the node was lost and forgotten in
    the same second, with its cordon.
    """
    decider = pool().accept(node("a"), CordonNode(node_id="a"))
    decider.at = T0 + 2 * LOST_KEPT_MS
    decider.accept(listed(T0, 0, silent=True))
    assert "NodeForgotten" not in names(decider.when(Tick()))
    assert decider.state[POOL].nodes["a"].cordon is not None
    assert next_tick(POOLS, decider.state) == (decider.at + LOST_KEPT_MS, POOL)


NODES, SLOTS, STARTED_AT = 120, 8, T0 - 30 * MINUTE


def full_pool(count: int = NODES) -> Pool:
    """All slots of `count` nodes train since half an hour before the full hour."""
    nodes: dict[str, Node] = {}
    leases: dict[str, Lease] = {}
    ref = running().state[POOL].leases["1"].ref
    for number in range(count * SLOTS):
        name = f"gpu-node-{number // SLOTS:04}"
        incarnation = f"{number // SLOTS:032x}"
        described = NodeDescription(
            node_id=name, incarnation=incarnation, slots=SLOTS, device="cuda", memory_bytes=1
        )
        nodes[name] = Node(description=described, last_seen=STARTED_AT)
        member = LeaseMember(
            node_id=name, incarnation=incarnation, slots=1, devices=(number % SLOTS,)
        )
        token = Token(pool=POOL, lease=number + 1)
        leases[lease_key(number + 1)] = Lease(
            ref=replace(ref, token=token, job_id=f"ftjob-{number:024x}"),
            members=(member,),
            max_gpu_ms=10**9,
            granted_at=STARTED_AT,
            started_at=STARTED_AT,
            alive_at=STARTED_AT,
        )
    return Pool(
        nodes=Map(nodes),
        leases=Map(leases),
        leases_of_nodes=keys_by_node(leases.values()),
        open=Map({lease.ref.job_id: key for key, lease in leases.items()}),
        next_lease=len(leases) + 1,
    )


def decide_all(
    at: int, commands: Sequence[Message], state: Pool | None = None
) -> tuple[Pool, list[tuple[Any, ...]]]:
    """What a pool makes of these commands and of the ticks that follow, by record."""
    decider = Decider(POOLS, POOL, at)
    decider.state = Map({POOL: state or full_pool()})
    records = [decider.when(command) for command in commands]
    while (due := next_tick(POOLS, decider.state)) is not None and due[0] <= at:
        records.append(decider.when(Tick()))
    assert max(len(msgspec.json.encode(events)) for events in records) < MESSAGE_BYTES_MAX * 3 // 4
    assert not any(isinstance(event, Rejected) for events in records for event in events)
    pool_after: Pool = decider.state[POOL]
    return pool_after, records


def observations(at: int, silent: bool, count: int = NODES) -> list[ObserveNodes]:
    """As the watcher sends them."""
    nodes = full_pool(count).nodes.values()
    seen = [
        NodeSeen(
            node_id=each.description.node_id,
            incarnation=each.description.incarnation,
            last_seen=at,
            silent=silent,
        )
        for each in nodes
    ]
    return [
        ObserveNodes(seen=tuple(seen[first : first + OBSERVED_MAX]))
        for first in range(0, len(seen), OBSERVED_MAX)
    ]


@pytest.mark.parametrize(
    "count", [NODES, pytest.param(2_000, marks=(pytest.mark.long, pytest.mark.soak))]
)
def test_sched_a10_all_nodes_silent_at_once_are_lost_and_all_leases_closed(count: int) -> None:
    """Finding A10: one record could not hold it, so that no node was ever lost."""
    silent = observations(T0, silent=True, count=count)
    after, records = decide_all(T0 + MINUTE, silent, full_pool(count))
    assert {each.standing for each in after.nodes.values()} == {"lost"}
    closed = [event for events in records for event in events if isinstance(event, PlacementClosed)]
    assert len(closed) == count * SLOTS
    assert not [lease for lease in after.leases.values() if not lease.closed]
    assert len(records) > count // OBSERVED_MAX, "it took ticks"
    assert after.deferred == ()


def test_sched_a10_the_hourly_proof_of_life_of_all_nodes_is_sliced() -> None:
    after, records = decide_all(T0 + MINUTE, observations(T0 + MINUTE, silent=False))
    sliced = [event for events in records for event in events if isinstance(event, UsageSliced)]
    assert len(sliced) == NODES * SLOTS
    assert {lease.used_gpu_ms for lease in after.leases.values()} == {30 * MINUTE}


def test_sched_a10_a_tick_that_finds_all_leases_due_ends_them_over_several_ticks() -> None:
    decider = Decider(POOLS, POOL, T0 + MINUTE)
    state = full_pool()
    killed = {
        key: replace(lease, killed_at=STARTED_AT + MINUTE) for key, lease in state.leases.items()
    }
    decider.state = Map({POOL: replace(state, leases=Map(killed))})
    ticks = 0
    while (due := next_tick(POOLS, decider.state)) is not None and due[0] <= decider.at:
        assert len(msgspec.json.encode(decider.when(Tick()))) < MESSAGE_BYTES_MAX
        ticks += 1
    assert ticks > 1
    assert all(lease.closed for lease in decider.state[POOL].leases.values())


LONG_NAME = "x" * 63


def test_sched_a10_grants_that_one_record_cannot_hold_follow_by_ticks() -> None:
    """Finding A10: nodes of a whole zone come back while all jobs of the pool wait."""
    described = NodeDescription(
        node_id="", incarnation=LONG_NAME, slots=32, device="cpu", memory_bytes=10**12
    )
    names_of = [f"{LONG_NAME[:-2]}{number:02}" for number in range(OBSERVED_MAX)]
    nodes = {
        name: Node(description=replace(described, node_id=name), last_seen=T0, standing="lost")
        for name in names_of
    }
    placement = replace(request().placement, tenant=LONG_NAME, memory_bytes=0)
    slots = 32 * OBSERVED_MAX
    waiting = {
        job_id: Waiting(placement=replace(placement, job_id=job_id), arrival=number)
        for number, job_id in enumerate(f"ftjob-{number}" for number in range(slots))
    }
    seen = tuple(
        NodeSeen(node_id=name, incarnation=LONG_NAME, last_seen=T0, silent=False) for name in nodes
    )
    state = Pool(nodes=Map(nodes), waiting=Map(waiting))
    after, records = decide_all(T0 + MINUTE, [ObserveNodes(seen=seen)], state)
    assert len(after.leases) == slots, "no slot is free beside a job that fits"
    assert len(records) > 2
    assert not after.planning_deferred


def test_sched_a10_back_offs_that_end_at_once_are_spread_over_ticks() -> None:
    failure = NodeFailure(node_id=LONG_NAME, times=1, back_off_until=T0)
    failures = {f"ftjob-{number:024}": (failure,) for number in range(6_000)}
    after, records = decide_all(T0, [], Pool(failures=Map(failures)))
    assert len(records) > 1
    assert all(f.back_off_until is None for each in after.failures.values() for f in each)


def test_sched_a10_refunds_of_long_jobs_are_spread_over_ticks() -> None:
    ref = replace(running().state[POOL].leases["1"].ref, tenant=LONG_NAME, price_version=LONG_NAME)
    charged: dict[str, tuple[ChargedHour, ...]] = {}
    for number in range(4):
        job = replace(ref, job_id=f"ftjob-{number}")
        hours = (ChargedHour(lease=job, hour_utc=hour, gpu_ms=1) for hour in range(1_500))
        charged[job.job_id] = tuple(hours)
    state = Pool(charged=Map(charged), works=Map(dict.fromkeys(charged, ())))
    ended = [ForgetWork(job_id=job_id, refund="platform_error") for job_id in charged]
    after, records = decide_all(T0, ended, state)
    credited = [event for events in records for event in events if isinstance(event, UsageCredited)]
    assert len(credited) == 6_000
    assert (len(after.charged), len(after.works), len(after.refunds)) == (0, 0, 0)
