"""Errands of a run: which there are, and that a run with one does what it says."""

import pytest

from schemas.account import KeyRevoked
from schemas.erasure import TenantErased
from schemas.prepaid import PrepaidGranted
from simulator.control_plane import control_plane_sim as simulation
from simulator.control_plane.errands import ERRANDS
from simulator.control_plane.plan import ERRANDS as NAMES
from simulator.control_plane.plan import LATER_ERRANDS, LONG_ERRANDS, ControlPlanePlan, Size
from simulator.engine.command_line import silence
from simulator.engine.faults import Faults

SIZE = Size(faulty_s=30)


def test_plans_name_the_errands_that_there_are() -> None:
    assert tuple(ERRANDS) == (*NAMES, *LONG_ERRANDS, *LATER_ERRANDS)


@pytest.mark.parametrize(
    ("name", "seed", "kind"),
    [
        ("keys", 1, KeyRevoked),
        ("prepaid", 1, PrepaidGranted),
        ("erasure", 1, TenantErased),
    ],
)
def test_review2_w1_an_errand_leaves_its_events(name: str, seed: int, kind: type) -> None:
    plan = ControlPlanePlan(seed, Faults(), jobs=1, errands=(name,))
    with silence():
        run = simulation.play(plan, SIZE)
    events = [
        event
        for decisions in run.context.decisions.values()
        for entry in decisions
        for event in entry.events
    ]
    assert any(isinstance(event, kind) for event in events)
    assert run.finished
