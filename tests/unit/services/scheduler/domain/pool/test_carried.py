"""The planned pool that is carried along is the one that would be made anew."""

from typing import Any

import pytest

from schemas.node import DeviceFault, ReportDeviceFaults
from schemas.reasons import device_fault
from services.scheduler.domain.pool import carried
from services.scheduler.domain.pool import decide as pool_decide
from services.scheduler.domain.pool.carried import planned_pool
from services.scheduler.domain.pool.placement import plan_pool
from services.scheduler.domain.pool.planned_pool import PlannedPool
from services.scheduler.domain.pool.state import Pool
from simulator.control_plane.samples import POOL, request
from simulator.control_plane.samples import node as register
from tests.searches import CARRIED_POOLS
from tests.unit.services.scheduler.domain.pool.test_decide import pool as empty
from tests.unit.services.scheduler.world import World
from tunery.plan.scheduling.plan import Plan, plan
from tunery.runtime.journal.codec import canonical

EVERYTHING = 1_000_000


def decisions(planned: Plan) -> tuple[object, ...]:
    reservations = [
        (reserved.request, reserved.at, reserved.seats, reserved.spare.free)
        for reserved in planned.reservations
    ]
    return planned.starts, planned.preemptions, reservations, planned.more


def view(planned: PlannedPool, at: int) -> tuple[object, ...]:
    """All that may be asked of a planned pool."""
    state = planned.state
    return (
        state.capacity.nodes,
        state.capacity.free,
        state.running,
        state.bound,
        state.held,
        state.queue.requests,
        planned.queued,
        decisions(plan(state, at)),
    )


def check(pool: Pool, at: int) -> None:
    assert view(planned_pool(pool), at) == view(PlannedPool(pool), at)


def compare_plans(monkeypatch: pytest.MonkeyPatch, seed: int) -> int:
    """Plans of a world with faults do not depend on whether the planned pool is built anew."""
    count = 0

    def compared(pool: Pool, at: int) -> Any:
        nonlocal count
        count += 1
        check(pool, at)
        return plan_pool(pool, at)

    monkeypatch.setattr(pool_decide, "plan_pool", compared)
    world = World(seed)
    world.drain()
    for _ in range(150):
        if world.random.random() < 0.3:
            world.submit(world.random.choice(("acme", "globex")))
        if world.jobs and world.random.random() < 0.1:
            world.meddle()
        world.step()
    return count


@pytest.mark.parametrize("seed", CARRIED_POOLS.beginnings())
def test_the_plan_of_a_carried_pool_is_that_of_a_new_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compare_plans(monkeypatch, seed) > 50


def test_a_change_that_is_not_carried_along_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "_touched", lambda *_: iter(()))
    with pytest.raises((AssertionError, KeyError)):
        compare_plans(monkeypatch, 0)


def test_older_pools_may_be_planned_again() -> None:
    """Each command is decided on a pool that is not the one of its events."""
    decider = empty().accept(register("a", "a-1", 2), request("f"))
    pools = [decider.state[POOL]]
    for job in ("g", "h", "i"):
        decider.accept(request(job))
        pools.append(decider.state[POOL])
    for pool in (*pools, *reversed(pools), pools[0], pools[-1], pools[1]):
        check(pool, 0)
    versions = [pool.__dict__["version"] for pool in pools]
    assert len({id(version) for version in versions}) == len(pools), "they were not made anew"


def test_what_is_carried_is_no_part_of_a_snapshot() -> None:
    pool = empty().accept(register("a", "a-1", 2), request("f")).state[POOL]
    before = canonical(pool)
    planned_pool(pool)
    assert canonical(pool) == before


def test_devices_that_fail_are_carried_along() -> None:
    """Also those that leases hold, and pools from before the fault may be planned again."""
    decider = empty().accept(register("a", "a-1", 4), request("f", slots=2), request("s1"))
    pools = [decider.state[POOL]]
    for numbers in ((1, 3), (1,), (0, 1, 2, 3), ()):
        listed = tuple(DeviceFault(device=d, reason=device_fault("throttled")) for d in numbers)
        planned_pool(pools[-1])
        decider.accept(ReportDeviceFaults(node_id="a", incarnation="a-1", faults=listed))
        pools.append(decider.state[POOL])
    for pool in (*pools, *reversed(pools)):
        check(pool, 0)
