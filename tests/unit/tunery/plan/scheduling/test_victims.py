"""The least loss is the least of all subsets, and no victim is one too many."""

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.tunery.plan.scheduling.clusters import (
    GB,
    HOUR,
    MINUTE,
    cluster,
    needs,
    nodes,
    ran,
    request,
    started,
)
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.plan import plan
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.requests import PlanNode
from tunery.plan.scheduling.victims import Eviction, find_eviction

AT = 10 * HOUR
LEASES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), min_size=1, max_size=6)


def evicted(wanted: int, lane: str, *leases: tuple[int, int], of: str = "free") -> Eviction | None:
    """The eviction on a full node. leases: slots, and minutes since the last checkpoint."""
    state = cluster(nodes(sum(slots for slots, _ in leases)))
    for number, (slots, minutes) in enumerate(leases):
        lease = ran(request(f"v{number}", slots, of, hours=9), (("a", slots),), HOUR, AT)
        state.start(replace(lease, saved_at=AT - minutes * MINUTE))
    state.advance(AT)
    return find_eviction(Draft(state, AT), request("p", wanted, lane))


@settings(max_examples=2 * settings().max_examples)
@given(leases=LEASES, wanted=st.integers(1, 8))
def test_the_loss_is_the_least_of_all_subsets(leases: list[tuple[int, int]], wanted: int) -> None:
    losses = [slots * (minutes * MINUTE + PRODUCT.restart_ms) for slots, minutes in leases]
    enough = [
        sum(losses[number] for number in subset)
        for size in range(1, len(leases) + 1)
        for subset in combinations(range(len(leases)), size)
        if sum(leases[number][0] for number in subset) >= wanted
    ]
    eviction = evicted(wanted, "premium", *leases)
    assert (eviction.loss if eviction else None) == min(enough, default=None)
    if eviction is not None:
        freed = [slots for number, (slots, _) in enumerate(leases) if f"v{number}" in eviction.keys]
        assert all(sum(freed) - slots < wanted for slots in freed), "one is not needed"


def test_only_later_lanes_are_stopped() -> None:
    assert evicted(1, "standard", (1, 1), of="standard") is None
    eviction = evicted(1, "premium", (1, 1), of="standard")
    assert eviction is not None
    assert eviction.keys == ("v0",)


def test_victims_on_a_machine_free_memory_as_well_as_slots() -> None:
    """Its leases share the memory: enough slots alone would use more than there is."""
    state = cluster([PlanNode("a", 3, "cpu", 4 * GB)])
    for name, lane, memory_bytes in (("f", "free", GB), ("p", "premium", 3 * GB)):
        wait = replace(request(name, 1, lane, hours=9), needs=needs(1, "cpu", memory_bytes))
        state.start(ran(wait, (("a", 1),), HOUR, AT))
    state.advance(AT)
    large = replace(request("q", 2, "premium"), needs=needs(2, "cpu", GB))
    small = replace(request("q", 2, "premium"), needs=needs(2, "cpu", GB // 2))
    assert find_eviction(Draft(state, AT), large) is None
    eviction = find_eviction(Draft(state, AT), small)
    assert eviction is not None
    assert eviction.keys == ("f",)


def test_seats_that_were_freed_wait_for_their_memory() -> None:
    wait = replace(request("p", 1, "premium"), needs=needs(1, "cpu", 3 * GB))
    state = cluster([PlanNode("a", 2, "cpu", 4 * GB)], wait)
    other = replace(request("o", 1, "standard"), needs=needs(1, "cpu", 2 * GB))
    state.start(ran(other, (("a", 1),), MINUTE, AT))
    state.bind("p", (("a", 1),))
    assert not plan(state, AT).starts
    state.end("o")
    assert started(plan(state, AT)) == {"p": (("a", 1),)}
