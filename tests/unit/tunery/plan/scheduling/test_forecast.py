"""The queue played through: examples, and its cost."""

import random
import time
from dataclasses import replace

from schemas.training import NodeConstraints
from tests.unit.tunery.plan.scheduling.clusters import HOUR, apply, cluster, nodes, ran, request
from tunery.plan.scheduling.forecast import forecast
from tunery.plan.scheduling.plan import Plan, plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.queue import in_order
from tunery.plan.scheduling.requests import LANES, Request

NOW = 100 * HOUR


def played(state: PlanningState, *order: Request, planned: Plan | None = None) -> dict[str, int]:
    """Hours from now until each starts, by what things may last."""
    starts = forecast(state, planned or Plan(), order, NOW, "p90")
    return {job_id: (at - NOW) // HOUR for job_id, at in starts.items()}


def test_requests_start_in_order_as_slots_become_free() -> None:
    running = ran(request("r", hours=2), (("a", 1),), 0, NOW)
    state = cluster(nodes(2))
    state.start(running)
    waits = [request("first", hours=1), request("second", hours=9), request("third")]
    assert played(state, *waits) == {"first": 0, "second": 1, "third": 2}


def test_a_large_request_is_not_delayed_by_later_ones_and_short_ones_go_before_it() -> None:
    state = cluster(nodes(4))
    state.start(ran(request("r", slots=2, hours=3), (("a", 2),), 0, NOW))
    waits = [request("gang", 4), request("long", hours=9), request("short", 2, hours=2)]
    assert played(state, *waits) == {"gang": 3, "long": 4, "short": 0}


def test_long_requests_start_beside_the_nodes_that_are_reserved() -> None:
    state = cluster(nodes(4, 2))
    state.start(ran(request("r", slots=2, hours=3), (("a", 2),), 0, NOW))
    assert played(state, request("gang", 4), request("long", hours=9)) == {"gang": 3, "long": 0}


def test_each_kind_of_nodes_keeps_the_start_of_the_first_that_waits_for_it() -> None:
    """Only the first of all had a promise: `new` was expected after all that is small."""
    first, second = nodes(4, 4)
    kinds = [replace(first, accelerator="a100"), replace(second, accelerator="h200")]
    state = cluster(kinds)
    for node_id, hours in (("a", 3), ("b", 4)):
        state.start(ran(request(node_id, 2, hours=hours), ((node_id, 2),), 0, NOW))

    def waits(job_id: str, slots: int, model: str, hours: int = 1) -> Request:
        waiting = request(job_id, slots, hours=hours)
        constraints = NodeConstraints(accelerator=model)
        return replace(waiting, needs=replace(waiting.needs, constraints=constraints))

    order = [
        waits("never", 8, "a100"),
        waits("old", 4, "a100"),
        waits("new", 4, "h200"),
        waits("long", 1, "h200", hours=9),
        waits("anywhere", 1, "", hours=9),
        waits("short", 2, "h200", hours=4),
    ]
    starts = played(state, *order)
    assert starts == {"old": 3, "new": 4, "short": 0, "long": 5, "anywhere": 4}


def test_of_one_class_the_shortest_starts_beside_a_promise() -> None:
    """Only the first of each class was tried: `short` was expected after `long`."""
    state = cluster(nodes(4))
    state.start(ran(request("r", slots=3, hours=3), (("a", 3),), 0, NOW))
    waits = [request("gang", 4), request("long", hours=9), request("short"), request("then")]
    assert played(state, *waits) == {"gang": 3, "long": 4, "short": 0, "then": 1}


def test_what_a_promise_leaves_of_its_node_is_not_kept_free() -> None:
    """The whole node was: `long` was expected after the gang."""
    state = cluster(nodes(4))
    state.start(ran(request("r", slots=2, hours=3), (("a", 2),), 0, NOW))
    waits = [request("gang", 3), request("long", hours=9), request("longer", hours=10)]
    assert played(state, *waits) == {"gang": 3, "long": 0, "longer": 4}


def test_a_forecast_is_what_the_planner_does_without_new_requests() -> None:
    """One tenant, no stops, and everything lasts as long as expected; random queues."""
    for seed in range(8):
        state, at = _random_cluster(random.Random(seed)), 1_000
        order = [each for lane in range(len(LANES)) for each in _served(state, lane)]
        expected = forecast(state, plan(state, at), order, at, "p50")
        actual = _play(state, at)
        off = [abs(actual[job_id] - expected[job_id]) for job_id in actual]
        assert expected.keys() == actual.keys()
        assert sum(off) / len(off) < HOUR, seed
        assert sum(each == 0 for each in off) >= 0.85 * len(off), seed


def _random_cluster(draw: random.Random) -> PlanningState:
    policy = replace(PRODUCT, preempting=0, premium_capped=False, aged_ms=1_000 * HOUR, kept_max=0)
    models = ("a100", "h200")
    of = [
        replace(node, accelerator=draw.choice(models)) for node in nodes(*draw.choices((4, 8), k=3))
    ]
    state = cluster(of, policy=policy)
    largest = max(node.slots for node in of)
    for number in range(40):
        waiting = request(
            f"j{number:02}",
            min(largest, draw.choice((1, 1, 1, 2, 4, 8))),
            draw.choice(LANES),
            draw.randint(1, 12),
        )
        state.queue.add(replace(waiting, submitted_at=number))
    return state


def _served(state: PlanningState, lane: int) -> list[Request]:
    return [*in_order(state.queue, lane, {}, frozenset())]


def _play(state: PlanningState, at: int) -> dict[str, int]:
    """When each starts, if the planner decides whenever something ends."""
    starts: dict[str, int] = {}
    while state.queue.requests or state.running:
        planned = plan(state, at)
        apply(state, planned, at)
        starts |= {start.request.job_id: at for start in planned.starts}
        at = min(lease.granted_at + lease.p50_ms for lease in state.running.values())
        for key in [
            key for key, lease in state.running.items() if lease.granted_at + lease.p50_ms == at
        ]:
            state.end(key)
    return starts


def test_what_comes_later_is_last_of_its_lane_then() -> None:
    state = cluster(nodes(2))
    state.start(ran(request("r", slots=2, hours=3), (("a", 2),), 0, NOW))
    free, standard = LANES.index("free"), LANES.index("standard")
    order = [request("first", 2, hours=4), request("last", 2, hours=5, lane="free")]

    def later(hours: int, slots: int = 2, lane: int = standard) -> dict[str, int]:
        comes = replace(request("l", slots, hours=1), submitted_at=NOW + hours * HOUR, lane=lane)
        starts = forecast(state, Plan(), order, NOW, "p90", comes)
        return {job_id: (at - NOW) // HOUR for job_id, at in starts.items()}

    assert later(1, lane=standard) == {"first": 3, "l": 7, "last": 8}
    assert later(1, lane=free) == {"first": 3, "last": 7, "l": 12}
    assert later(8, lane=standard) == {"first": 3, "last": 7, "l": 12}
    assert later(20)["l"] == 20, "nothing is left before it"
    assert later(1, slots=9) == {"first": 3, "last": 7}, "it fits on no node"


def test_what_never_fits_has_no_start() -> None:
    assert played(cluster(nodes(2)), request("gang", 3), request("j")) == {"j": 0}
    assert played(cluster([]), request("j")) == {}


def test_what_was_decided_has_its_slots_first() -> None:
    waits = [request("first"), request("second")]
    state = cluster(nodes(1), *waits)
    planned = plan(state, NOW)
    assert played(state, *waits, planned=planned) == {"first": 0, "second": 1}
    state = cluster(nodes(1), *waits)
    state.start(replace(ran(request("victim"), (("a", 1),), 0, NOW), ends_by=NOW + 1))
    state.bind("second", (("a", 1),))
    assert played(state, *waits) == {"second": 0, "first": 1}


def test_a_queue_of_a_thousand_is_played_in_a_moment() -> None:
    sizes = (8,) * 26
    state = cluster(nodes(*sizes))
    waits = [
        request(f"j{number:04}", (1, 1, 2, 4, 8)[number % 5], hours=1 + number % 7)
        for number in range(1_000)
    ]
    began = time.process_time()
    starts = forecast(state, Plan(), waits, NOW, "p90")
    assert len(starts) == 1_000
    assert time.process_time() - began < 2.0  # a bound for a busy machine, not the figure
