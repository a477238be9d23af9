"""Invariants of the planner over random clusters, and mutants that break each of them."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from schemas.training import Device
from tests.searches import PLANNER_WALKS
from tests.unit.tunery.plan.scheduling.clusters import GB, HOUR, MINUTE, plan_at
from tunery.plan.scheduling import outlook as outlook_module
from tunery.plan.scheduling import plan as plan_module
from tunery.plan.scheduling.capacity import Capacity, suits
from tunery.plan.scheduling.outlook import ClusterOutlook
from tunery.plan.scheduling.plan import Plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.requests import LANES, PlanNode, Request, RequestClass, Running, granted

STEPS = 60


class Walk:
    """A cluster that lives: requests come, leases save their work, end and are stopped."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = [
            PlanNode(
                f"n{number}",
                self.random.choice((1, 4, 8)),
                self.random.choice(("cpu", "cuda", "cuda")),
                self.random.choice((8, 24)) * GB,
                self.random.choice(("east", "west")),
            )
            for number in range(self.random.randint(1, 6))
        ]
        self.all_nodes = [*self.nodes]
        self.state = PlanningState(self.nodes, PRODUCT)
        self.at, self.number = 0, 0

    def step(self) -> Plan:
        self.at += self.random.randint(1, 20) * MINUTE
        self.change_a_node()
        for _ in range(self.random.randint(0, 3)):
            self.submit()
        for key, lease in sorted(self.state.running.items()):
            fate = self.random.random()
            if fate < 0.1 or (lease.ends_by is not None and fate < 0.5):
                self.state.end(key)
            elif fate < 0.6:
                self.state.save(key, self.at)
        planned = plan_at(self.state, self.at)
        self.check(planned)
        for start in planned.starts:
            self.state.leave_queue(start.request.job_id)
            key = start.request.job_id
            lease = granted(start.request, start.seats, self.at, key)
            self.state.start(replace(lease, started_at=self.at, saved_at=self.at))
        for preemption in planned.preemptions:
            self.state.bind(preemption.request.job_id, preemption.seats)
            for key in preemption.keys:
                self.state.notify(key, self.at + 2 * MINUTE)
        return planned

    def change_a_node(self) -> None:
        """A node goes, or comes back with the slots that it had."""
        node, fate = self.random.choice(self.all_nodes), self.random.random()
        if fate < 0.05 and len(self.nodes) > 1 and node in self.nodes:
            self.nodes.remove(node)
            self.state.remove_node(node.node_id)
        elif fate > 0.8 and node not in self.nodes:
            self.nodes.append(node)
            self.state.put_node(node)

    def submit(self) -> None:
        self.number += 1
        hours = self.random.randint(1, 30)
        slots = self.random.choice((1, 1, 2, 4, 8, 12, 16))
        devices: tuple[Device, ...] = ("cpu", "cuda", "cuda")
        device = self.random.choice(devices)
        self.state.queue.add(
            Request(
                job_id=f"j{self.number:03d}",
                tenant=self.random.choice(("acme", "globex", "initech")),
                lane=self.random.randrange(len(LANES)),
                needs=RequestClass(slots, device, self.random.choice((1, 10)) * GB),
                submitted_at=self.at,
                p50_ms=hours * HOUR,
                p90_ms=2 * hours * HOUR,
            )
        )

    def check(self, planned: Plan) -> None:
        """1 to 3, 7, 9 and 10 of the invariants that the planner promises."""
        free = {node.node_id: node.slots for node in self.nodes}
        for lease in self.state.running.values():
            for node_id, slots in lease.seats:
                if node_id in free:
                    free[node_id] -= slots
        assert free == self.state.capacity.free, "free slots are what no lease holds"
        by_name = {node.node_id: node for node in self.nodes}
        for start in planned.starts:
            assert sum(slots for _, slots in start.seats) == start.request.needs.slots, "a gang"
            for node_id, slots in start.seats:
                node = by_name[node_id]
                assert suits(node.kind, node.memory_bytes, start.request.needs), "and has memory"
                free[node_id] -= slots
        assert min(free.values()) >= 0, "a node has more leases than slots"
        for preemption in planned.preemptions:
            for key in preemption.keys:
                victim = self.state.running[key]
                assert self.may_stop(preemption.request, victim), "of a later lane, or late"
                lost_ms = self.at - victim.saved_at + PRODUCT.restart_ms
                assert lost_ms <= min(victim.p50_ms // 20, 10 * MINUTE), "inside the bound"
        for reserved in planned.reservations:
            assert reserved.at > self.at or reserved.kept, "what fits now is not reserved"
        self.check_conservation(planned)
        assert decisions(plan_at(self.state, self.at)) == decisions(planned), "it changes nothing"
        assert decisions(plan_at(self.rebuilt(), self.at)) == decisions(planned), "carried along"

    def may_stop(self, request: Request, victim: Running) -> bool:
        """Whether a lease is of a later lane, or of that of a late request, but younger."""
        is_late = request.lane > 0 and self.state.queue.due(request)[0] < self.at
        is_younger = (victim.lane, victim.submitted_at) > (request.lane, request.submitted_at)
        return victim.lane > request.lane or (is_late and is_younger)

    def rebuilt(self) -> PlanningState:
        """The state, built anew from its leases and requests."""
        state = PlanningState(self.nodes, PRODUCT)
        for lease in self.state.running.values():
            state.start(lease)
        for request in self.state.queue.requests.values():
            state.queue.add(request)
        for job_id, seats in self.state.bound.items():
            state.bind(job_id, seats)
        return state

    def check_conservation(self, planned: Plan) -> None:
        """No slots stay free beside a request that fits, unless they are reserved or bound."""
        if planned.reservations or planned.preemptions or self.state.bound:
            return
        left = self.state.capacity.copy()
        for start in planned.starts:
            left.take(start.seats, start.request.needs.memory_bytes)
        started = {start.request.job_id for start in planned.starts}
        for job_id, request in self.state.queue.requests.items():
            assert job_id in started or left.find_seats(request.needs) is None, "it fits"


def decisions(planned: Plan) -> tuple[object, ...]:
    """A plan, without the slots that are spare beside its reservation."""
    reservations = [
        (reserved.request, reserved.at, reserved.seats, reserved.spare.free)
        for reserved in planned.reservations
    ]
    return planned.starts, planned.preemptions, reservations, planned.more


def walk(seed: int) -> int:
    """Play requests without a broken invariant; the number that was granted."""
    world = Walk(seed)
    return sum(len(world.step().starts) for _ in range(STEPS))


def walk_all(seeds: int) -> None:
    for seed in range(seeds):
        walk(seed)


@pytest.mark.parametrize("seed", PLANNER_WALKS.beginnings())
def test_the_planner_keeps_its_invariants(seed: int) -> None:
    assert walk(seed) >= 0


def _overfull(self: Capacity, node_id: str, slots: int, memory_bytes: int) -> None:
    """Slots that are taken stay in the list of free ones."""
    self.free[node_id] += slots


def _always(*_: Any) -> int:
    return 0


def _half_of_it(planner: Any, request: Request, seats: Any) -> None:
    (node_id, slots), *rest = seats
    _start(planner, request, ((node_id, max(1, slots // 2)), *rest))


_start = plan_module._Pass._start
MUTANTS: list[tuple[str, Any, str, Callable[..., Any]]] = [
    ("a node is given twice", Capacity, "_change", _overfull),
    ("half a gang", plan_module._Pass, "_start", _half_of_it),
    ("a victim whatever it loses", outlook_module, "loss_ms", _always),
    ("what fits is passed over", plan_module._Pass, "_fit", lambda *_: None),
    ("an outlook that is never looked at again", ClusterOutlook, "take_due", lambda *_: set()),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "owner", "attribute", "broken"), MUTANTS)
def test_a_broken_planner_breaks_an_invariant(
    name: str,
    owner: Any,
    attribute: str,
    broken: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, attribute, broken)
    with pytest.raises(AssertionError):
        walk_all(20)
