"""The town as a scenario of the simulator."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.town import town
from tests.simulation.town.audit import check
from tests.simulation.town.plan import Plan, Size, draw
from tunery.runtime.testing.verdict import NOTHING_BROKEN, Verdict

SIZE: Final = Size()


@dataclass(frozen=True)
class Town:
    """Implements `Scenario`."""

    name: str = "town"
    size: Size = SIZE

    def plan(self, seed: int) -> Plan:
        return draw(seed, self.size)

    def play(
        self,
        plan: Plan,
        trace: bool = False,
        broken: AbstractContextManager[Any] = NOTHING_BROKEN,
    ) -> Verdict:
        with broken:
            run = town.play(plan, self.size, trace)
        return check(run)


TOWN: Final = Town()
