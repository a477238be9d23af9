"""Broken rules of elastic nodes are among those that the scenario must catch."""

from simulator.control_plane.elastic_mutants import ELASTIC_MUTANTS
from simulator.control_plane.mutants import MUTANTS


def test_rules_of_elastic_nodes_are_broken_as_others_are() -> None:
    assert {*ELASTIC_MUTANTS} <= {*MUTANTS}
    assert {rule.invariant for rule in ELASTIC_MUTANTS} == {"admission", "slots", "start"}
