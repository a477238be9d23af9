"""One pass: lanes, fairness, reservation and backfill, preemption with its bound."""

from dataclasses import replace

import pytest

from schemas.training import NodeConstraints
from tests.unit.tunery.plan.scheduling.clusters import (
    GB,
    HOUR,
    MINUTE,
    apply,
    cluster,
    needs,
    nodes,
    plan_at,
    ran,
    request,
    started,
)
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT

AT = 10 * HOUR
ALONE = replace(PRODUCT, preempting=0, kept_max=0)
UNKEPT = replace(PRODUCT, kept_max=0)


def test_lanes_are_served_in_order() -> None:
    state = cluster(nodes(2), request("f", 1, "free"), request("s"), request("p", 1, "premium"))
    assert list(started(plan_at(state, AT))) == ["p", "s"]


def test_the_tenant_with_the_fewest_slots_goes_first() -> None:
    burst = [request(f"a{number}") for number in range(3)]
    state = cluster(nodes(2), *burst, request("b0", tenant="globex"), policy=UNKEPT)
    assert list(started(plan_at(state, AT))) == ["a0", "b0"]


def test_a_tenant_is_served_shortest_first_and_no_request_waits_for_ever() -> None:
    long, short = request("long", hours=2), request("short", hours=1)
    assert list(started(plan_at(cluster(nodes(1), long, short, policy=UNKEPT), AT))) == ["short"]
    state = cluster(nodes(1), long, policy=UNKEPT)
    state.queue.add(replace(short, submitted_at=3 * HOUR))
    assert list(started(plan_at(state, AT))) == ["long"]


def test_a_free_request_that_has_waited_long_is_served_with_the_standard_lane() -> None:
    state = cluster(nodes(1), request("f", 1, "free"), policy=UNKEPT)
    state.queue.add(replace(request("s"), submitted_at=9 * HOUR))
    assert list(started(plan_at(state, 10 * HOUR))) == ["s"]
    assert list(started(plan_at(state, PRODUCT.aged_ms))) == ["f"]


def test_only_what_does_not_delay_the_first_blocked_request_starts_before_it() -> None:
    """Node `a` is the gang's in two hours; until then its free slots are for what is short."""
    state = cluster(nodes(8, 1), request("gang", 8), policy=ALONE)
    state.start(ran(request("old", 4, hours=3), (("a", 4),), HOUR, AT))
    for job_id, hours in (("long", 3), ("short", 1), ("exact", 2)):
        state.queue.add(replace(request(job_id, hours=hours), submitted_at=10 * HOUR))
    planned = plan_at(state, AT)
    (reserved,) = planned.reservations
    assert (reserved.request.job_id, reserved.at) == ("gang", AT + 2 * HOUR)
    assert started(planned) == {"short": (("b", 1),), "exact": (("a", 1),)}


def wait_for(
    state: PlanningState, job_id: str, slots: int, model: str, hours: int, at: int
) -> None:
    """Let a request wait for nodes with such devices; an empty model: for any."""
    waits = request(job_id, slots, hours=hours)
    needed = replace(waits.needs, constraints=NodeConstraints(accelerator=model))
    state.queue.add(replace(waits, needs=needed, submitted_at=at))


def half_busy() -> PlanningState:
    """Two nodes of 8 slots, half of each busy: `a` has A100 for two hours, `b` H200 for three."""
    first, second = nodes(8, 8)
    kinds = [replace(first, accelerator="a100"), replace(second, accelerator="h200")]
    state = cluster(kinds, policy=ALONE)
    for node_id, hours in (("a", 3), ("b", 4)):
        state.start(ran(request(node_id, 4, hours=hours), ((node_id, 4),), HOUR, AT))
    return state


def test_what_waits_for_other_nodes_alone_has_a_reservation_of_its_own() -> None:
    """What may have nodes of both kinds is behind both; small work cannot starve either gang."""
    state = half_busy()
    wait_for(state, "old", 8, "a100", 1, 0)
    wait_for(state, "new", 8, "h200", 1, 1)
    wait_for(state, "next", 8, "h200", 1, 2)
    wait_for(state, "small", 1, "h200", 9, 3 * HOUR)
    wait_for(state, "anywhere", 1, "", 9, 3 * HOUR)
    wait_for(state, "short", 1, "h200", 3, 3 * HOUR)
    wait_for(state, "shorter", 1, "", 2, 3 * HOUR)
    planned = plan_at(state, AT)
    reserved = {each.request.job_id: (each.at, each.seats) for each in planned.reservations}
    assert reserved == {"old": (AT + 2 * HOUR, (("a", 8),)), "new": (AT + 3 * HOUR, (("b", 8),))}
    assert started(planned) == {"shorter": (("a", 1),), "short": (("b", 1),)}


def test_requests_for_any_node_do_not_leave_unreserved_nodes_to_backfill() -> None:
    state = half_busy()
    wait_for(state, "old", 8, "a100", 1, 0)
    wait_for(state, "either", 8, "", 1, 1)  # behind the reservation of "old", without one itself
    wait_for(state, "new", 8, "h200", 1, 2)
    wait_for(state, "small", 1, "h200", 9, 3 * HOUR)
    planned = plan_at(state, AT)
    assert [each.request.job_id for each in planned.reservations] == ["old", "new"]
    assert started(planned) == {}, "it would keep what is reserved now waiting"


def test_what_runs_too_long_for_the_reservation_starts_where_it_needs_nothing() -> None:
    state = cluster(nodes(8, 2), request("gang", 8), policy=ALONE)
    state.start(ran(request("old", 4, hours=3), (("a", 4),), HOUR, AT))
    for number in range(3):
        state.queue.add(replace(request(f"long{number}", hours=9), submitted_at=10 * HOUR))
    assert started(plan_at(state, AT)) == {"long0": (("b", 1),), "long1": (("b", 1),)}


def test_the_bound_of_a_preemption_protects_its_victim() -> None:
    standard = request("s")

    def stopped(**changes: object) -> tuple[str, ...]:
        state = cluster(nodes(1), standard)
        victim = ran(request("f", 1, "free", hours=10), (("a", 1),), 30 * MINUTE, AT)
        state.start(replace(victim, **changes))  # type: ignore[arg-type]  # of its fields
        return tuple(key for each in plan_at(state, AT).preemptions for key in each.keys)

    assert stopped() == ("f",)
    assert stopped(saved_at=AT - 7 * MINUTE) == ("f",)
    assert stopped(saved_at=AT - 7 * MINUTE - 1) == ()  # with 3 minutes to start again: 10 at most
    assert stopped(p50_ms=HOUR) == ("f",)
    assert stopped(p50_ms=HOUR - 20_000) == ()  # 3 minutes are 5 % of an hour
    assert stopped(preemptions=2) == ("f",)
    assert stopped(preemptions=3) == ()
    assert stopped(started_at=AT - 10 * MINUTE + 1) == ()
    assert stopped(started_at=None) == ()
    assert stopped(ends_by=AT + MINUTE) == ()
    assert stopped(lane=1) == ()
    assert stopped(p90_ms=33 * MINUTE) == ()  # it will have ended by itself


def test_victims_are_those_with_the_least_loss_together() -> None:
    """Four slots: one lease of four loses less than two of two that saved earlier."""
    state = cluster(nodes(4, 4), request("p", 4, "premium"))
    saved = {"x": 1, "y": 4, "z": 3}
    for key, slots, node_id in (("x", 2, "a"), ("y", 2, "a"), ("z", 4, "b")):
        lease = ran(request(key, slots, "free", hours=9), ((node_id, slots),), HOUR, AT)
        state.start(replace(lease, saved_at=AT - saved[key] * MINUTE))
    (preemption,) = plan_at(state, AT).preemptions
    assert (preemption.keys, preemption.seats) == (("x", "y"), (("a", 4),))
    assert preemption.loss == 2 * (1 + 3 + 4 + 3) * MINUTE
    state.save("y", AT - 6 * MINUTE)
    (preemption,) = plan_at(state, AT).preemptions
    assert preemption.keys == ("z",)


def test_slots_that_are_being_freed_are_their_beneficiarys() -> None:
    state = cluster(nodes(2), request("p", 2, "premium"), request("q", 1, "premium"))
    for key in ("x", "y"):
        state.start(ran(request(key, 1, "free", hours=9), (("a", 1),), HOUR, AT))
    (preemption,) = plan_at(state, AT).preemptions
    assert (preemption.request.job_id, preemption.keys) == ("p", ("x", "y"))
    state.bind("p", preemption.seats)
    for key in preemption.keys:
        state.notify(key, AT + MINUTE)
    state.end("x")
    assert plan_at(state, AT + 1).starts == ()
    state.end("y")
    assert started(plan_at(state, AT + 2)) == {"p": (("a", 2),)}


def test_a_beneficiary_that_fits_elsewhere_before_starts_there() -> None:
    state = cluster(nodes(1, 1), request("p", 1, "premium"), request("f", 1, "free"))
    for key, node_id in (("x", "a"), ("y", "b")):
        state.start(ran(request(key, 1, "free", hours=9), ((node_id, 1),), HOUR, AT))
    state.bind("p", (("a", 1),))
    state.notify("x", AT + MINUTE)
    state.end("y")
    assert started(plan_at(state, AT)) == {"p": (("b", 1),)}
    state.bind("p", (("gone", 1),))
    assert started(plan_at(state, AT)) == {"p": (("b", 1),)}


def test_a_gang_stops_whole_nodes() -> None:
    state = cluster(nodes(8, 8, 8), request("gang", 16, "premium"))
    for key, slots, node_id in (("x", 8, "a"), ("y", 1, "b"), ("z", 1, "c")):
        state.start(ran(request(key, slots, "free", hours=9), ((node_id, slots),), HOUR, AT))
    (preemption,) = plan_at(state, AT).preemptions
    assert (preemption.keys, preemption.seats) == (("y", "z"), (("b", 8), ("c", 8)))


def test_sched_a_gang_stops_no_more_of_its_last_node_than_it_needs() -> None:
    state = cluster(nodes(8, 8), request("gang", 12, "premium"))
    for key, slots, node_id in (("x", 8, "a"), ("y", 4, "b"), ("z", 4, "b")):
        state.start(ran(request(key, slots, "free", hours=9), ((node_id, slots),), HOUR, AT))
    (preemption,) = plan_at(state, AT).preemptions
    assert (preemption.keys, preemption.seats) == (("x", "y"), (("a", 8), ("b", 4)))
    assert preemption.loss == 12 * PRODUCT.restart_ms


def test_sched_a_node_that_comes_back_with_less_memory_holds_nothing_for_a_request() -> None:
    large = replace(request("p", 1, "premium"), needs=needs(1, "cuda", 20 * GB))
    state = cluster(nodes(1), large, request("s"))
    state.bind("p", (("a", 1),))
    (node,) = nodes(1)
    state.put_node(replace(node, memory_bytes=16 * GB))
    assert started(plan_at(state, AT)) == {"s": (("a", 1),)}
    state.put_node(node)
    assert started(plan_at(state, AT)) == {"p": (("a", 1),)}


def test_a_pass_has_limits_and_says_so() -> None:
    few = replace(PRODUCT, starts_max=2)
    state = cluster(nodes(8), *(request(f"j{number}") for number in range(5)), policy=few)
    planned = plan_at(state, AT)
    assert (len(planned.starts), planned.more) == (2, True)
    apply(state, planned, AT)
    apply(state, plan_at(state, AT), AT)
    assert (len(plan_at(state, AT).starts), plan_at(state, AT).more) == (1, False)


@pytest.mark.parametrize("estimate_ms", [0, 1, 10**18])
def test_an_absurd_estimate_blocks_no_request(estimate_ms: int) -> None:
    """A tenant states its estimate: neither its job nor others may wait for ever because of it."""
    odd = replace(request("odd", 2), p50_ms=estimate_ms, p90_ms=estimate_ms)
    state = cluster(nodes(2), odd, request("usual", 1), request("other", 1, tenant="globex"))
    at, starting = 0, set[str]()
    for _ in range(4):
        planned = plan_at(state, at)
        starting |= started(planned).keys()
        apply(state, planned, at)
        for key in [*state.running]:
            state.end(key)
        at += HOUR
    assert starting == {"odd", "usual", "other"}


@pytest.mark.parametrize("estimate_ms", [0, 10**18])
def test_an_absurd_estimate_does_not_widen_the_bound_of_preemptions(estimate_ms: int) -> None:
    at = 24 * HOUR
    odd = replace(request("odd", 1, "free"), p50_ms=estimate_ms, p90_ms=10**18)
    for minutes, may in ((1, estimate_ms > 0), (8, False)):
        state = cluster(nodes(1), request("p", 1, "premium"))
        lease = ran(odd, (("a", 1),), HOUR, at)
        state.start(replace(lease, saved_at=at - minutes * MINUTE))
        assert bool(plan_at(state, at).preemptions) is may
