"""The event core as a scenario: a plan decides the run, and a broken rule is broken in it."""

from collections.abc import Iterator
from contextlib import contextmanager

from simulator.engine.command_line import silence
from simulator.event_core.scenario import EVENT_CORE


def test_a_plan_gives_the_same_verdict_again_and_is_traced_on_request() -> None:
    plan = EVENT_CORE.plan(5)
    assert plan == EVENT_CORE.plan(5) != EVENT_CORE.plan(6)
    with silence():
        first, traced = EVENT_CORE.play(plan), EVENT_CORE.play(plan, trace=True)
    assert (first.violations, first.counts, first.voided) == (
        traced.violations,
        traced.counts,
        traced.voided,
    )
    assert first.trace == []
    assert traced.trace


def test_a_rule_is_broken_during_the_run_alone() -> None:
    order: list[str] = []

    @contextmanager
    def broken() -> Iterator[None]:
        order.append("broken")
        yield
        order.append("mended")

    with silence():
        verdict = EVENT_CORE.play(EVENT_CORE.plan(5), broken=broken())
    assert order == ["broken", "mended"]
    assert verdict.counts["commands"] > 0
