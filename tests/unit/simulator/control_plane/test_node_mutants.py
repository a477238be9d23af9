"""Broken rules of where leases go are among those that the scenario must catch."""

from simulator.control_plane.mutants import MUTANTS
from simulator.control_plane.node_mutants import NODE_MUTANTS


def test_review2_w1_rules_of_placements_are_broken_as_others_are() -> None:
    assert {*NODE_MUTANTS} <= {*MUTANTS}
    assert {rule.invariant for rule in NODE_MUTANTS} >= {"domain", "spot", "drain", "forgotten"}
