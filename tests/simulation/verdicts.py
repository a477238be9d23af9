"""Verdicts on runs that no invariant is violated in."""

from typing import Any, Protocol

from simulator.engine.verdict import Verdict


class Scenario(Protocol):
    """A scenario whose runs follow from plans, and plans from seeds."""

    @property
    def name(self) -> str: ...

    def plan(self, seed: int) -> Any: ...

    def play(self, plan: Any) -> Verdict: ...


def sound(scenario: Scenario, seed: int) -> Verdict:
    """The verdict on the run of a seed, which no invariant is violated in."""
    verdict = scenario.play(scenario.plan(seed))
    assert not verdict.violations, (
        f"seed {seed}: {verdict.violations[0]}; replay it with "
        f"`python -m simulator --scenario {scenario.name} --seed {seed} --trace`"
    )
    return verdict
