"""The scenario of the event core: the production hosts with two small streams."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from tunery.runtime.testing import scenario
from tunery.runtime.testing.check import check
from tunery.runtime.testing.scenario import Plan
from tunery.runtime.testing.verdict import NOTHING_BROKEN, Verdict


@dataclass(frozen=True)
class Core:
    """Implements `Scenario`."""

    name: str = "core"

    def plan(self, seed: int) -> Plan:
        return scenario.plan(seed)

    def play(
        self,
        plan: Plan,
        trace: bool = False,
        broken: AbstractContextManager[Any] = NOTHING_BROKEN,
    ) -> Verdict:
        with broken:
            run = scenario.play(plan, trace)
        return check(run)


CORE: Final = Core()
