"""Queries of a pool's queue, leases and free devices."""

import sys
from collections.abc import Callable
from types import FrameType

from immutables import Map
from msgspec.structs import replace

from bench.full_pool import FullPool
from schemas.node import NodeDescription, NodeSeen
from schemas.pool import LeaseMember, LeaseRef, ObserveNodes, Token
from schemas.training import WorkDescription, work_id_of
from services.scheduler.app import POOLS
from services.scheduler.domain.pool.state import (
    Lease,
    Node,
    Pool,
    free_devices,
    is_run_by,
    keys_by_node,
    lease_key,
    lease_of,
    leases_on,
    member_on,
    open_leases,
    work_of,
)
from tests.histories.replaying import histories
from tests.unit.services.gateway.jobs.job_events import TRAIN, placed

PLACEMENT = placed(1).placement


def node(node_id: str, slots: int) -> Node:
    description = NodeDescription(
        node_id=node_id, incarnation="i", slots=slots, device="cuda", memory_bytes=1, fabric=True
    )
    return Node(description=description, last_seen=0)


def lease(number: int, *members: LeaseMember, job_id: str = "ftjob-1") -> Lease:
    ref = LeaseRef(
        token=Token(pool="default", lease=number),
        tenant="acme",
        job_id=job_id,
        attempt=1,
        role="train",
        lane="premium",
        price_version="2026-11",
    )
    return Lease(ref=ref, members=members, max_gpu_ms=1, granted_at=0)


def member(node_id: str, *devices: int) -> LeaseMember:
    return LeaseMember(node_id=node_id, incarnation="i", slots=len(devices), devices=devices)


def pool(*leases: Lease) -> Pool:
    return Pool(
        nodes=Map({"a": node("a", 4), "b": node("b", 2)}),
        leases=Map({lease_key(held.number): held for held in leases}),
        leases_of_nodes=keys_by_node(leases),
        open=Map({held.ref.job_id: lease_key(held.number) for held in leases if not held.closed}),
    )


GANG = lease(2, member("a", 0, 2), member("b", 1))


def test_devices_are_free_once_their_member_is() -> None:
    def free(*leases: Lease) -> list[int]:
        return free_devices(node("a", 4), leases)

    assert free() == [0, 1, 2, 3]
    assert free(GANG) == [1, 3]
    assert free(replace(GANG, freed=("a",))) == [0, 1, 2, 3]
    assert free(replace(GANG, closed=True)) == [1, 3]


def test_leases_of_a_node_are_those_that_still_hold_slots_there() -> None:
    first = lease(1, member("a", 1))
    assert leases_on(pool(GANG, first), "a") == (first, GANG)
    assert leases_on(pool(replace(GANG, freed=("a",)), first), "a") == (first,)
    assert leases_on(pool(GANG), "c") == ()


def test_a_closed_lease_has_no_open_money_and_no_placement() -> None:
    closed = replace(GANG, closed=True)
    assert open_leases(pool(closed)) == ()
    assert lease_of(pool(closed), "ftjob-1", 1) is None
    assert lease_of(pool(GANG), "ftjob-1", 1) == GANG
    assert lease_of(pool(GANG), "ftjob-1", 2) is None
    assert lease_of(pool(GANG), "ftjob-2", 1) is None


def test_a_freed_member_still_counts_for_the_use_of_its_lease() -> None:
    freed = replace(GANG, freed=("a",))
    assert (freed.slots, freed.node_ids) == (3, ("a", "b"))
    assert member_on(freed, "a") is None
    assert member_on(freed, "b") == member("b", 1)


def test_only_the_agents_of_its_members_run_a_lease() -> None:
    assert is_run_by(GANG, "i")
    assert not is_run_by(GANG, "j")


def test_work_is_described_for_its_own_job_only() -> None:
    description = WorkDescription(job_id="ftjob-1", work_id=work_id_of(TRAIN), work=TRAIN)
    known = Pool(works=Map({"ftjob-1": (description,)}))
    assert work_of(known, "ftjob-1", description.work_id) == TRAIN
    assert work_of(known, "ftjob-2", description.work_id) is None
    assert work_of(known, "ftjob-1", "ab" * 32) is None


def test_review2_e2_the_index_of_leases_by_node_follows_every_recorded_pool() -> None:
    pools = [
        pool
        for history in histories()
        if history.aggregate is POOLS
        for state in history.states()
        for pool in state.values()
    ]
    assert any(len(pool.leases_of_nodes) > 1 for pool in pools)
    for pool in pools:
        by_number = sorted(pool.leases.values(), key=lambda lease: lease.number)
        assert pool.leases_of_nodes == keys_by_node(by_number)


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions a piece of work calls, and items of generators it takes."""
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_review2_e2_an_observation_costs_the_nodes_that_it_names() -> None:
    """Deciding and folding an observation went through all leases of the pool."""

    def cost(nodes: int, seen: int) -> int:
        pool = FullPool(nodes)
        names = sorted(pool.pool.nodes)[:seen]
        sights = tuple(
            NodeSeen(node_id=name, incarnation=name, last_seen=pool.at, silent=False)
            for name in names
        )
        command = ObserveNodes(seen=sights)
        pool.send(command)  # the planner's pool is carried from here on
        return calls_of(lambda: pool.send(command))

    assert cost(30, 2) <= 1.1 * cost(5, 2)
    assert cost(30, 20) > 4 * cost(30, 2)
