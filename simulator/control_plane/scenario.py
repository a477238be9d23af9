"""The control plane as a scenario of the simulator."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from simulator.control_plane import control_plane_sim as simulation
from simulator.control_plane.audit import check
from simulator.control_plane.plan import ControlPlanePlan, Size, draw
from simulator.engine.verdict import NOTHING_BROKEN, Verdict

SIZE: Final = Size()


@dataclass(frozen=True)
class ControlPlane:
    """Implements `Scenario`."""

    name: str = "control_plane"
    size: Size = SIZE

    def plan(self, seed: int) -> ControlPlanePlan:
        return draw(seed, self.size)

    def play(
        self,
        plan: ControlPlanePlan,
        trace: bool = False,
        broken: AbstractContextManager[Any] = NOTHING_BROKEN,
    ) -> Verdict:
        with broken:
            run = simulation.play(plan, self.size, trace)
        return check(run)


CONTROL_PLANE: Final = ControlPlane()
