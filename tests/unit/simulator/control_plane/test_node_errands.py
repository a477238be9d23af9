"""Errands of nodes and waiting work leave the events that they are there for."""

import pytest

from schemas.admission import AdmissionsReviewed
from schemas.node import NodeForgotten, SpotGivenUp, SpotReconsidered
from simulator.control_plane import control_plane_sim as simulation
from simulator.control_plane.node_errands import SPOT_JOB
from simulator.control_plane.plan import ControlPlanePlan, Size
from simulator.engine.command_line import silence
from simulator.engine.faults import Faults

SIZE = Size(faulty_s=30)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("forgotten nodes", NodeForgotten),
        ("late on spot nodes", SpotGivenUp),
        ("lost spot nodes", SpotReconsidered),
        ("serving months", AdmissionsReviewed),
    ],
)
def test_review2_w1_an_errand_leaves_its_events(name: str, kind: type) -> None:
    plan = ControlPlanePlan(1, Faults(), jobs=1, errands=(name,))
    with silence():
        run = simulation.play(plan, SIZE)
    events = [
        event
        for decisions in run.context.decisions.values()
        for entry in decisions
        for event in entry.events
    ]
    left = [event for event in events if isinstance(event, kind)]
    assert left
    assert {getattr(event, "job_id", SPOT_JOB) for event in left} == {SPOT_JOB}
    assert run.finished
    assert run.context.violations == []
