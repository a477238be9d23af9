"""Requirement on every scenario: its plan alone decides the run."""

from collections.abc import Iterator
from contextlib import contextmanager

from simulator.engine.command_line import silence
from simulator.engine.verdict import Scenario


def assert_a_plan_decides_the_run(scenario: Scenario, seed: int) -> None:
    """Running a plan again gives the same verdict, traced or with another context."""
    order: list[str] = []

    @contextmanager
    def entered() -> Iterator[None]:
        order.append("entered")
        yield
        order.append("left")

    plan = scenario.plan(seed)
    assert plan == scenario.plan(seed) != scenario.plan(seed + 1)
    with silence():
        first = scenario.play(plan)
        traced = scenario.play(plan, trace=True, broken=entered())
    assert order == ["entered", "left"]
    assert first.counts["commands"] > 0
    assert (first.violations, first.counts, first.faults, first.voided) == (
        traced.violations,
        traced.counts,
        traced.faults,
        traced.voided,
    )
    assert first.trace == []
    assert traced.trace
