"""The control plane as a scenario: its plan alone decides the run."""

from collections.abc import Iterator
from contextlib import contextmanager

from simulator.control_plane.scenario import CONTROL_PLANE
from simulator.engine.command_line import silence


def test_a_plan_gives_the_same_verdict_again_traced_or_with_another_context() -> None:
    order: list[str] = []

    @contextmanager
    def entered() -> Iterator[None]:
        order.append("entered")
        yield
        order.append("left")

    plan = CONTROL_PLANE.plan(2)
    assert plan == CONTROL_PLANE.plan(2) != CONTROL_PLANE.plan(3)
    with silence():
        first = CONTROL_PLANE.play(plan)
        traced = CONTROL_PLANE.play(plan, trace=True, broken=entered())
    assert order == ["entered", "left"]
    assert first.counts["commands"] > 0
    assert (first.violations, first.counts, first.faults) == (
        traced.violations,
        traced.counts,
        traced.faults,
    )
    assert first.trace == []
    assert traced.trace
