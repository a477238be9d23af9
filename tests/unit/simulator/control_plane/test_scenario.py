"""The control plane as a scenario: a plan decides the run, and a broken rule is broken in it."""

from collections.abc import Iterator
from contextlib import contextmanager

from simulator.control_plane.scenario import CONTROL_PLANE
from simulator.engine.command_line import silence


def test_a_plan_gives_the_same_verdict_again_and_is_traced_on_request() -> None:
    plan = CONTROL_PLANE.plan(2)
    assert plan == CONTROL_PLANE.plan(2) != CONTROL_PLANE.plan(3)
    with silence():
        first, traced = CONTROL_PLANE.play(plan), CONTROL_PLANE.play(plan, trace=True)
    assert (first.violations, first.counts, first.faults) == (
        traced.violations,
        traced.counts,
        traced.faults,
    )
    assert first.trace == []
    assert traced.trace


def test_a_rule_is_broken_during_the_run_and_mended_for_the_check() -> None:
    order: list[str] = []

    @contextmanager
    def broken() -> Iterator[None]:
        order.append("broken")
        yield
        order.append("mended")

    with silence():
        verdict = CONTROL_PLANE.play(CONTROL_PLANE.plan(2), broken=broken())
    assert order == ["broken", "mended"]
    assert verdict.counts["jobs"] > 0
