"""Late requests for whole nodes: who makes way for them, and when."""

from dataclasses import replace

import pytest

from tests.unit.tunery.plan.scheduling.clusters import (
    GB,
    HOUR,
    MINUTE,
    apply,
    cluster,
    nodes,
    plan_at,
    ran,
    request,
    started,
)
from tunery.plan.scheduling import late
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT, Policy
from tunery.plan.scheduling.requests import PlanNode, Request

UNKEPT = replace(PRODUCT, kept_max=0)


def crowded(policy: Policy) -> PlanningState:
    """Two full nodes, and a job for a whole node that has waited for two hours."""
    state = cluster(nodes(8, 8), request("gang", 8, hours=70), policy=policy)
    for number, (node_id, hours) in enumerate((("a", 1), ("a", 3), ("b", 2), ("b", 4))):
        state.start(ran(request(f"r{number}", 4, hours=hours), ((node_id, 4),), 0, 2 * HOUR))
    return state


def start_of_the_gang(policy: Policy) -> int | None:
    """In which hour it starts, while jobs that never save anything come in each."""
    state = crowded(policy)
    for hour in range(2, 60):
        at = hour * HOUR + MINUTE
        for key in [*state.running]:
            if state.running[key].granted_at + state.running[key].p50_ms <= at:
                state.end(key)
        for number in range(2):
            small = request(f"s{hour:02}{number}", 4, hours=4)
            state.queue.add(replace(small, submitted_at=at))
        planned = plan_at(state, at)
        if "gang" in started(planned):
            return hour
        apply(state, planned, at)
    return None


def test_review2_q1_what_saves_nothing_is_in_the_way_for_twice_the_promise_at_most() -> None:
    assert start_of_the_gang(UNKEPT) is None, "small jobs refill both nodes for ever"
    assert (start_of_the_gang(PRODUCT) or 60) <= 40 + 5, "then nothing that goes on starts there"


def late_for_a_node(*leases: tuple[str, int, int]) -> PlanningState:
    """A full node, and a request for all of it that was submitted at 2 and is late at 30 hours.

    leases: name, when it was submitted, and how many minutes before 30 hours its work was saved.
    """
    state = cluster(nodes(4))
    for name, submitted, minutes in leases:
        behind = replace(request(name, 4 // len(leases), hours=20), submitted_at=submitted * HOUR)
        lease = ran(behind, (("a", 4 // len(leases)),), 20 * HOUR, 30 * HOUR)
        state.start(replace(lease, saved_at=30 * HOUR - minutes * MINUTE))
    state.queue.add(replace(request("late", 4, hours=50), submitted_at=2 * HOUR))
    return state


def test_review2_q1_leases_make_way_for_what_is_late_one_by_one_when_they_have_saved() -> None:
    state = late_for_a_node(("one", 5, 1), ("two", 6, 25))
    (stop,) = plan_at(state, 30 * HOUR).preemptions
    assert (stop.request.job_id, stop.keys, stop.seats) == ("late", ("one",), (("a", 4),))
    state.bind("late", stop.seats)
    state.end("one")
    state.queue.add(replace(request("next", 1, hours=1), submitted_at=20 * HOUR))
    planned = plan_at(state, 30 * HOUR)
    assert (planned.starts, planned.preemptions) == ((), ()), "its seats are reserved"
    state.save("two", 30 * HOUR + MINUTE)
    (stop,) = plan_at(state, 30 * HOUR + MINUTE).preemptions
    assert stop.keys == ("two",)
    state.end("two")
    assert started(plan_at(state, 30 * HOUR + MINUTE)) == {"late": (("a", 4),)}


@pytest.mark.parametrize(
    ("submitted", "stopped"),
    [(1, ()), (2, ()), (3, ("other",))],
    ids=["earlier", "at once", "later"],
)
def test_review2_q1_only_what_was_submitted_later_makes_way(
    submitted: int, stopped: tuple[str, ...]
) -> None:
    """Otherwise a job that was stopped could stop the one that replaced it."""
    planned = plan_at(late_for_a_node(("other", submitted, 0)), 30 * HOUR)
    assert tuple(key for each in planned.preemptions for key in each.keys) == stopped


def test_review2_q1_what_makes_way_may_start_until_then() -> None:
    """With other numbers: no slot stays idle while a lease that does not make way goes on."""
    state = late_for_a_node(("old", 1, 0), ("new", 3, 0))
    state.end("new")
    for job_id, submitted in (("earlier", 1), ("later", 16)):
        waits = replace(request(job_id, 2, hours=40), submitted_at=submitted * HOUR)
        state.queue.add(waits)
    planned = plan_at(state, 23 * HOUR)
    assert [each.request.job_id for each in planned.reservations if each.kept] == ["late"]
    assert [*started(planned)] == ["later"]


def test_review2_q1_only_premium_comes_before_what_is_late() -> None:
    at = 30 * HOUR
    state = cluster(nodes(2), request("late", 2, "free", 50))
    state.start(ran(request("r", hours=9), (("a", 1),), 0, at))
    state.queue.add(replace(request("s", hours=20), submitted_at=at))
    assert started(plan_at(state, at)) == {}
    state.queue.add(replace(request("p", 1, "premium", 20), submitted_at=at))
    planned = plan_at(state, at)
    assert [*started(planned)] == ["p"]
    assert [each.request.job_id for each in planned.reservations] == ["late"]


def test_review2_q1_few_nodes_of_many_are_looked_at_for_a_late_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan of a large cluster costs what it concerns; the node whose leases are last is found."""
    of = [PlanNode(f"n{number:04d}", 2, "cuda", 24 * GB) for number in range(1_000)]
    state = PlanningState(of, PRODUCT)
    for number, node in enumerate(of):
        seats = ((node.node_id, 2),)
        behind = replace(request(node.node_id, 2, hours=90), submitted_at=number % 1_000)
        state.start(replace(ran(behind, seats, HOUR, 30 * HOUR), key=node.node_id))
    state.queue.add(replace(request("late", 2, hours=50), submitted_at=998))
    looked_at: list[str] = []
    cost = late._cost

    def noted(draft: Draft, asked: Request, node_id: str) -> tuple[int, int, str]:
        looked_at.append(node_id)
        return cost(draft, asked, node_id)

    monkeypatch.setattr(late, "_cost", noted)
    (stop,) = plan_at(state, 30 * HOUR).preemptions
    assert (stop.keys, len(looked_at) <= 2 * late.CANDIDATES_MAX) == (("n0999",), True)
