"""Errands about jobs and nodes leave what they are about."""

from typing import Any

import pytest

from schemas.integrations import MirrorReported
from schemas.node import NodeCordoned, NodeKeysWithdrawn
from schemas.sweep import SweepSubmitted
from simulator.control_plane import control_plane_sim as simulation
from simulator.control_plane.audit import audit_run
from simulator.control_plane.plan import ControlPlanePlan, Size
from simulator.engine.command_line import silence
from simulator.engine.faults import Faults


@pytest.mark.parametrize(
    ("name", "stream", "kind"),
    [
        ("sweep", "job", SweepSubmitted),
        ("reports", "job", MirrorReported),
        ("orders", "pool", NodeCordoned),
        ("withdrawn keys", "pool", NodeKeysWithdrawn),
    ],
)
def test_review2_w1_an_errand_leaves_its_events(name: str, stream: str, kind: Any) -> None:
    plan = ControlPlanePlan(2, Faults(), jobs=1, errands=(name,))
    with silence():
        run = simulation.play(plan, Size(faulty_s=40))
    events = [event for entry in run.context.decisions[stream] for event in entry.events]
    assert any(isinstance(event, kind) for event in events)
    assert audit_run(run).violations == []
