"""The least loss is the least of all subsets, and no victim is one too many."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.domain.pool.planning.capacity import Capacity
from services.scheduler.domain.pool.planning.victims import Victim, find_eviction
from tests.unit.services.scheduler.domain.pool.planning.clusters import nodes, request

LEASES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(leases=LEASES, wanted=st.integers(1, 8))
def test_the_loss_is_the_least_of_all_subsets(leases: list[tuple[int, int]], wanted: int) -> None:
    free = Capacity(nodes(24))
    free.take((("a", 24),), 0)
    victims = [
        Victim(slots * loss, f"v{number}", 2, (("a", slots),))
        for number, (slots, loss) in enumerate(leases)
    ]
    enough = [
        sum(victim.loss for victim in subset)
        for size in range(1, len(victims) + 1)
        for subset in combinations(victims, size)
        if sum(victim.seats[0][1] for victim in subset) >= wanted
    ]
    eviction = find_eviction(free, {"a": sorted(victims)}, request("p", wanted, "premium"))
    assert (eviction.loss if eviction else None) == min(enough, default=None)
    if eviction is not None:
        freed = [victim.seats[0][1] for victim in victims if victim.key in eviction.keys]
        assert all(sum(freed) - slots < wanted for slots in freed), "one is not needed"


def test_only_later_lanes_are_stopped() -> None:
    free = Capacity(nodes(1))
    free.take((("a", 1),), 0)
    victims = {"a": [Victim(1, "s", 1, (("a", 1),))]}
    assert find_eviction(free, victims, request("s2")) is None
    eviction = find_eviction(free, victims, request("p", lane="premium"))
    assert eviction is not None
    assert eviction.keys == ("s",)
