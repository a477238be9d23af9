"""The scenario of the event core: the production hosts with two small streams."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from tunery.runtime.testing import run, scenario
from tunery.runtime.testing.check import check
from tunery.runtime.testing.run import Plan
from tunery.runtime.testing.verdict import NOTHING_BROKEN, Verdict


@dataclass(frozen=True)
class Core:
    """Implements `Scenario`."""

    name: str = "core"

    def plan(self, seed: int) -> Plan:
        return run.plan(seed)

    def play(
        self,
        plan: Plan,
        trace: bool = False,
        broken: AbstractContextManager[Any] = NOTHING_BROKEN,
    ) -> Verdict:
        with broken:
            played = scenario.play(plan, trace)
        return check(played)


CORE: Final = Core()
