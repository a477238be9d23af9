"""Broken rules of accounts are among those that the scenario must catch."""

from simulator.control_plane.account_mutants import ACCOUNT_MUTANTS
from simulator.control_plane.mutants import MUTANTS


def test_review2_w1_rules_of_accounts_are_broken_as_others_are() -> None:
    assert {*ACCOUNT_MUTANTS} <= {*MUTANTS}
    assert {rule.invariant for rule in ACCOUNT_MUTANTS} >= {"prepaid", "month", "erasure"}
