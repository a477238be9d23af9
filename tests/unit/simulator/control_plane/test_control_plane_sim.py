"""Months of a run are closed by what billing has of it."""

from schemas.account import InvoiceClosed
from simulator.control_plane import control_plane_sim as simulation
from simulator.control_plane.audit import audit_run
from simulator.control_plane.plan import ControlPlanePlan, Size
from simulator.engine.command_line import silence
from simulator.engine.faults import Faults


def test_review2_w1_two_months_of_each_tenant_are_closed_with_all_that_was_used() -> None:
    plan = ControlPlanePlan(3, Faults(), jobs=2, closings=True)
    with silence():
        run = simulation.play(plan, Size(faulty_s=60))
    closed = [
        (entry.header.key, event.statement.period)
        for entry in run.context.decisions["account"]
        for event in entry.events
        if isinstance(event, InvoiceClosed)
    ]
    assert len(closed) == len({*closed}) == 4
    assert audit_run(run).violations == []
