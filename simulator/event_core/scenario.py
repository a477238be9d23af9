"""The scenario of the event core: the production hosts with two small streams."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from simulator.engine.verdict import NOTHING_BROKEN, Verdict
from simulator.event_core import run
from simulator.event_core import simulation as scenario
from simulator.event_core.check import check
from simulator.event_core.run import EventCorePlan


@dataclass(frozen=True)
class EventCore:
    """Implements `Scenario`."""

    name: str = "event_core"

    def plan(self, seed: int) -> EventCorePlan:
        return run.plan(seed)

    def play(
        self,
        plan: EventCorePlan,
        trace: bool = False,
        broken: AbstractContextManager[Any] = NOTHING_BROKEN,
    ) -> Verdict:
        with broken:
            played = scenario.play(plan, trace)
        return check(played)


EVENT_CORE: Final = EventCore()
