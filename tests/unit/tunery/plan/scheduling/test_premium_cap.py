"""Premium is first up to its cap. Beyond it premium comes last, and preempts nothing."""

from dataclasses import replace

import pytest

from tests.unit.tunery.plan.scheduling.clusters import (
    GB,
    HOUR,
    cluster,
    needs,
    nodes,
    plan_at,
    ran,
    request,
    started,
)
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT, Policy
from tunery.plan.scheduling.premium_cap import PremiumCap
from tunery.plan.scheduling.requests import PlanNode, Request

AT = 10 * HOUR
GANG = request("gang", 4)


def premium(job_id: str, slots: int = 1) -> Request:
    return request(job_id, slots, "premium", tenant="globex")


def with_premium(slots: int, *waiting: Request, policy: Policy = PRODUCT) -> PlanningState:
    """Two nodes of 8 slots. slots: number that premium holds, in leases of one slot."""
    state = cluster(nodes(8, 8), *waiting, policy=policy)
    for number in range(slots):
        seats = (("ab"[number // 8], 1),)
        state.start(ran(premium(f"p{number}"), seats, HOUR, AT))
    return state


def is_beyond(state: PlanningState, slots: int, stopped: int = 0) -> bool:
    return PremiumCap(state, state.premium).is_beyond(needs(slots), stopped)


def test_premium_leaves_the_largest_gang_that_waits_in_another_lane_its_slots() -> None:
    waits = (request("small", 1, "free"), GANG)
    assert not is_beyond(with_premium(11, *waits), 1)
    state = with_premium(12, *waits)
    assert is_beyond(state, 1)
    state.queue.remove("gang")
    assert not is_beyond(state, 1)
    assert is_beyond(with_premium(15, waits[0]), 1)
    assert not is_beyond(with_premium(16), 1)


def test_a_premium_gang_goes_first_however_small_the_others_are() -> None:
    assert not is_beyond(with_premium(11, GANG), 8)


def test_a_gang_that_fits_nowhere_takes_nothing_from_premium() -> None:
    one_node = replace(PRODUCT, spanning=False)
    assert is_beyond(with_premium(10, request("wide", 9)), 1)
    assert not is_beyond(with_premium(10, request("wide", 9), policy=one_node), 1)
    other = replace(GANG, needs=needs(4, "cpu"))
    assert not is_beyond(with_premium(13, other), 1)
    assert not PremiumCap(with_premium(13), {}).is_beyond(needs(1, "cpu"))


def test_half_of_the_slots_are_premium_s_in_any_case() -> None:
    gang = request("gang", 16)
    assert not is_beyond(with_premium(7, gang), 1)
    assert is_beyond(with_premium(8, gang), 1)


def test_what_would_be_stopped_counts_as_what_waits() -> None:
    state = with_premium(9)
    assert not is_beyond(state, 1, stopped=6)
    assert is_beyond(state, 1, stopped=7)


def test_a_number_of_slots_is_a_cap_whoever_waits() -> None:
    policy = replace(PRODUCT, premium_slots_max=3)
    assert not is_beyond(with_premium(2, policy=policy), 1)
    assert is_beyond(with_premium(3, policy=policy), 1)
    assert is_beyond(with_premium(0, policy=policy), 4)


def test_without_a_cap_premium_may_have_everything() -> None:
    state = with_premium(15, GANG, policy=replace(PRODUCT, premium_capped=False))
    assert not is_beyond(state, 1)


def test_slots_of_premium_come_and_go_with_leases_and_nodes() -> None:
    state = with_premium(10)
    kind = nodes(8)[0].kind
    assert state.premium == {kind: 10}
    state.end("p9")
    assert state.premium == {kind: 9}
    state.remove_node("a")
    assert state.premium == {kind: 1}
    larger = PlanNode("a", 8, "cuda", 48 * GB)
    state.put_node(larger)
    state.put_node(larger)
    assert state.premium == {kind: 1, larger.kind: 8}


def test_premium_beyond_its_cap_comes_after_the_other_lanes_and_starts_where_nothing_is_lost() -> (
    None
):
    gang = request("gang", 4, "free")
    state = with_premium(12, gang, premium("q0"), premium("q1"))
    planned = plan_at(state, AT)
    assert started(planned) == {"gang": (("b", 4),)}
    assert planned.beyond == {needs(1)}
    idle = with_premium(12, premium("q0"), premium("q1"))
    assert started(plan_at(idle, AT)).keys() == {"q0", "q1"}


def test_a_reservation_of_another_lane_is_kept_from_premium_beyond_its_cap() -> None:
    """Without the cap the premium lane had every slot as soon as it is free, for ever."""
    gang = request("gang", 8, "free")
    state = with_premium(15, gang, *(premium(f"q{number}") for number in range(3)))
    state.end("p0")
    planned = plan_at(state, AT)
    assert [each.request.job_id for each in planned.reservations] == ["gang"]
    assert started(planned) == {"q0": (("b", 1),)}  # the gang will have node `a`
    uncapped = with_premium(
        15,
        gang,
        *(premium(f"q{number}") for number in range(3)),
        policy=replace(PRODUCT, premium_capped=False),
    )
    uncapped.end("p0")
    assert started(plan_at(uncapped, AT)).keys() == {"q0", "q1"}


@pytest.mark.parametrize("is_capped", [True, False])
def test_premium_beyond_its_cap_preempts_nothing(*, is_capped: bool) -> None:
    policy = replace(PRODUCT, premium_capped=is_capped)
    state = with_premium(12, premium("q0"), policy=policy)
    victim = replace(request("victim", 4, "free", hours=9), tenant="acme")
    state.start(ran(victim, (("b", 4),), HOUR, AT))
    planned = plan_at(state, AT)
    assert [each.keys for each in planned.preemptions] == ([] if is_capped else [("victim",)])
