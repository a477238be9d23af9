"""The fold of a pool is total: what an event names and the pool does not know changes nothing."""

from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from schemas.envelope import Context, Repeated
from schemas.node import NodeSeen
from schemas.pool import (
    Event,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    MemberFreed,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    PlacementQueued,
    UsageCredited,
    UsageSliced,
    WaitExplained,
)
from schemas.reasons import ending
from schemas.reasons import waiting as waiting_reason
from schemas.works import WorkForgotten
from services.scheduler.domain.pool.evolve import evolve, evolve_pool
from services.scheduler.domain.pool.state import INCARNATIONS_REMEMBERED_MAX, Pool
from tests.unit.services.scheduler.domain.pool.test_state import GANG, PLACEMENT, lease, node, pool

AT = 50_000
REF = GANG.ref
OTHER = lease(9).ref


def context(at: int = AT, key: str = "default") -> Context:
    return Context(at=at, key=key, tenant="acme", command_id="c", seq=1)


def after(state: Pool, *events: Event, at: int = AT) -> Pool:
    for event in events:
        state = evolve_pool(state, event, context(at))
    return state


def killed(code: Any = "preempted", ref: Any = REF) -> LeaseKilled:
    return LeaseKilled(lease=ref, ended_by="platform", reason=ending(code))


def draining(deadline: int) -> LeaseDraining:
    return LeaseDraining(
        lease=REF, deadline=deadline, ended_by="tenant", reason=ending("cancelled")
    )


@pytest.mark.parametrize(
    "event",
    [
        NodeRetired(node_id="z"),
        NodeLost(node_id="z", incarnation="i", last_seen=1),
        WaitExplained(
            tenant="acme", job_id="ftjob-9", attempt=1, reason=waiting_reason("no_node_up")
        ),
        LeaseGranted(lease=OTHER, members=()),
        MemberFreed(lease=OTHER, node_id="a"),
        UsageSliced(lease=OTHER, hour_utc=1, used_gpu_ms=1, billable_gpu_ms=1),
        UsageCredited(lease=OTHER, hour_utc=1, lost_gpu_ms=1, cause="platform"),
        killed(ref=OTHER),
        WorkForgotten(job_id="ftjob-9"),
        Repeated(of="c"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_events_about_what_is_unknown_change_nothing(event: Event) -> None:
    before = pool(GANG)
    assert evolve_pool(before, event, context()) == before


def test_a_pool_begins_with_its_first_event_and_leaves_the_others_alone() -> None:
    pools = evolve(Map(), NodeRegistered(node=node("a", 2).description), context(key="east"))
    assert sorted(pools) == ["east"]
    more = evolve(pools, NodeRegistered(node=node("a", 4).description), context(key="west"))
    assert more["east"] is pools["east"]
    assert evolve(more, Repeated(of="c"), context(key="north")) is more


def incarnation(number: int) -> NodeRegistered:
    return NodeRegistered(node=replace(node("a", 2).description, incarnation=f"i-{number}"))


def test_a_node_remembers_so_many_of_its_former_incarnations_newest_first() -> None:
    count = INCARNATIONS_REMEMBERED_MAX + 3
    known = after(Pool(), *(incarnation(number) for number in range(count)))
    (current,) = known.nodes.values()
    assert current.description.incarnation == f"i-{count - 1}"
    assert current.former == tuple(
        f"i-{count - 2 - back}" for back in range(INCARNATIONS_REMEMBERED_MAX)
    )


def seen(last_seen: int, node_id: str = "a", of: str = "i", *, silent: bool = False) -> NodeSeen:
    return NodeSeen(node_id=node_id, incarnation=of, last_seen=last_seen, silent=silent)


def observed(*entries: NodeSeen) -> NodesObserved:
    return NodesObserved(seen=entries)


@pytest.mark.parametrize(("last_seen", "expected"), [(40_000, 40_000), (AT + 1, AT), (-1, 0)])
def test_a_proof_of_life_is_never_from_the_future_and_never_goes_back(
    last_seen: int, expected: int
) -> None:
    assert after(pool(), observed(seen(last_seen))).nodes["a"].last_seen == expected


def test_a_lost_node_is_up_again_after_a_heartbeat_and_a_retired_one_is_not() -> None:
    lost = after(pool(), NodeLost(node_id="a", incarnation="i", last_seen=1))
    assert after(lost, observed(seen(2, silent=True))).nodes["a"].standing == "lost"
    assert after(lost, observed(seen(2, of="i-0"))).nodes["a"].standing == "lost"
    assert after(lost, observed(seen(2))).nodes["a"].standing == "up"
    retired = after(pool(), NodeRetired(node_id="a"))
    assert after(retired, observed(seen(2))).nodes["a"].standing == "retired"


def test_a_lease_lives_as_long_as_its_most_silent_member() -> None:
    running = replace(GANG, started_at=1, alive_at=1)
    both = observed(seen(30_000), seen(20_000, "b"))
    assert after(pool(running), both).leases["2"].alive_at == 20_000
    freed = replace(running, freed=("b",))
    assert after(pool(freed), both).leases["2"].alive_at == 30_000
    assert after(pool(GANG), both).leases["2"].alive_at == 0  # it has not started


def test_a_grant_takes_its_placement_out_of_the_queue() -> None:
    queued = after(Pool(), PlacementQueued(placement=PLACEMENT))
    ref = replace(REF, job_id=PLACEMENT.job_id, attempt=PLACEMENT.attempt)
    stale = replace(ref, attempt=PLACEMENT.attempt + 1)
    assert after(queued, LeaseGranted(lease=stale, members=GANG.members)) == queued
    held = after(queued, LeaseGranted(lease=ref, members=GANG.members))
    assert (list(held.waiting), held.next_lease) == ([], 3)
    granted = held.leases["2"]
    assert (granted.granted_at, granted.max_gpu_ms) == (AT, PLACEMENT.max_gpu_ms)


def test_arrivals_number_the_queue_also_when_a_job_comes_again() -> None:
    again = replace(PLACEMENT, attempt=2)
    queued = after(Pool(), PlacementQueued(placement=PLACEMENT), PlacementQueued(placement=again))
    (waiting,) = queued.waiting.values()
    assert (waiting.placement, waiting.arrival, queued.arrivals) == (again, 2, 2)
    assert dict(queued.attempts) == {PLACEMENT.job_id: 2}


def test_the_first_order_to_end_a_lease_keeps_its_author() -> None:
    drained = after(pool(GANG), draining(90_000), draining(95_000), at=10)
    order = drained.leases["2"].ending
    assert order is not None
    assert (order.ended_by, order.deadline) == ("tenant", 90_000)
    hardened = after(drained, killed(), at=20).leases["2"]
    assert (hardened.ending, hardened.killed_at) == (order, 20)
    at_once = after(pool(GANG), killed(), at=20).leases["2"]
    assert at_once.ending is not None
    assert (at_once.ending.ended_by, at_once.ending.deadline) == ("platform", None)


def test_slices_and_credits_add_up() -> None:
    sliced = UsageSliced(lease=REF, hour_utc=1, used_gpu_ms=30, billable_gpu_ms=20)
    credit = UsageCredited(lease=REF, hour_utc=1, lost_gpu_ms=5, cause="platform")
    summed = after(pool(GANG), sliced, sliced, credit).leases["2"]
    assert (summed.used_gpu_ms, summed.billable_gpu_ms, summed.lost_gpu_ms) == (60, 40, 5)
