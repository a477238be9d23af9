"""An elastic node in a run of its own: what it does to leases, all of which end."""

from simulator.control_plane.scenario import CONTROL_PLANE


def test_leases_wait_are_admitted_late_and_slots_change_in_one_run() -> None:
    plan = CONTROL_PLANE.plan(90)
    assert plan.elastic
    verdict = CONTROL_PLANE.play(plan)
    assert verdict.violations == []
    assert verdict.faults["lease waited"] > 0
    assert verdict.kinds["pool event LeaseAdmitted"] > 0
    assert verdict.kinds["pool event NodeResized"] > 0
