"""The event core as a scenario: its plan alone decides the run."""

from collections.abc import Iterator
from contextlib import contextmanager

from simulator.engine.command_line import silence
from simulator.event_core.scenario import EVENT_CORE


def test_a_plan_gives_the_same_verdict_again_traced_or_with_another_context() -> None:
    order: list[str] = []

    @contextmanager
    def entered() -> Iterator[None]:
        order.append("entered")
        yield
        order.append("left")

    plan = EVENT_CORE.plan(5)
    assert plan == EVENT_CORE.plan(5) != EVENT_CORE.plan(6)
    with silence():
        first = EVENT_CORE.play(plan)
        traced = EVENT_CORE.play(plan, trace=True, broken=entered())
    assert order == ["entered", "left"]
    assert first.counts["commands"] > 0
    assert (first.violations, first.counts, first.voided) == (
        traced.violations,
        traced.counts,
        traced.voided,
    )
    assert first.trace == []
    assert traced.trace
