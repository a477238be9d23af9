"""The control plane as a scenario of the simulator."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from simulator.control_plane import control_plane_sim as town
from simulator.control_plane.audit import check
from simulator.control_plane.plan import Plan, Size, draw
from simulator.engine.verdict import NOTHING_BROKEN, Verdict

SIZE: Final = Size()


@dataclass(frozen=True)
class ControlPlane:
    """Implements `Scenario`."""

    name: str = "control_plane"
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


CONTROL_PLANE: Final = ControlPlane()
