"""Broken rules of sweeps and nodes are among those that the scenario must catch."""

from simulator.control_plane.mutants import MUTANTS
from simulator.control_plane.work_mutants import WORK_MUTANTS


def test_review2_w1_rules_of_sweeps_and_nodes_are_broken_as_others_are() -> None:
    assert {*WORK_MUTANTS} <= {*MUTANTS}
    assert {rule.invariant for rule in WORK_MUTANTS} >= {"sweep", "cordon", "enrolment"}
