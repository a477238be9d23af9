"""Broken rules of the exporter are among those that the scenario must catch."""

from simulator.control_plane.export_mutants import EXPORT_MUTANTS
from simulator.control_plane.mutants import MUTANTS


def test_review2_w1_rules_of_exports_are_broken_as_others_are() -> None:
    assert {*EXPORT_MUTANTS} <= {*MUTANTS}
    assert {rule.invariant for rule in EXPORT_MUTANTS} == {"export", "announced use"}
