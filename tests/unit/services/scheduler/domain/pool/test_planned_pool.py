"""A pool as the planner sees it."""

from immutables import Map
from msgspec.structs import replace

from services.scheduler.domain.pool.planned_pool import (
    Part,
    PlannedPool,
    job_part,
    lease_part,
    node_part,
)
from services.scheduler.domain.pool.state import Pool, Waiting
from tests.unit.services.scheduler.domain.pool.test_state import GANG, PLACEMENT, pool

KNOWN = Waiting(placement=replace(PLACEMENT, device="cuda", memory_bytes=1), arrival=1)


def test_a_part_that_is_put_back_leaves_the_pool_as_it_was() -> None:
    before = replace(pool(GANG), waiting=Map({"ftjob-1": KNOWN}))
    planned, empty = PlannedPool(before), Pool()
    assert planned.state.capacity.free == {"a": 2, "b": 1}
    parts: list[Part] = [
        node_part(empty, "a"),
        lease_part(empty, "2"),
        job_part(empty, "ftjob-1"),
    ]
    undo = [planned.put(part) for part in parts]
    assert (planned.state.capacity.free, planned.state.running, planned.queued) == (
        {"b": 2},
        {},
        {},
    )
    for part in reversed(undo):
        planned.put(part)
    assert planned.state.capacity.free == {"a": 2, "b": 1}
    assert list(planned.state.queue.requests) == ["ftjob-1"] == list(planned.queued)
