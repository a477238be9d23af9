"""Every mutant of jobs, leases and money breaks a rule that exists."""

from collections import Counter

import pytest

from simulator.control_plane.mutants import MUTANTS
from simulator.event_core.mutants import Mutant


@pytest.mark.parametrize("rule", MUTANTS, ids=lambda rule: rule.name)
def test_every_mutant_breaks_a_rule_that_exists_and_mends_it(rule: Mutant) -> None:
    before = dict(vars(rule.owner))
    with rule.alive():
        assert vars(rule.owner)[rule.attribute] is rule.broken
    assert dict(vars(rule.owner)) == before


def test_mutants_have_names_of_their_own() -> None:
    assert [
        name for name, count in Counter(rule.name for rule in MUTANTS).items() if count > 1
    ] == []
