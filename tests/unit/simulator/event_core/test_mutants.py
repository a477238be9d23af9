"""A mutant breaks one rule for a while, and refuses to break what is not there."""

import builtins
from types import ModuleType
from typing import Any

import pytest

from simulator.event_core.mutants import MUTANTS, Mutant


class Meter:
    def __init__(self) -> None:
        self.total = 7

    def read(self) -> int:
        return self.total


class Submeter(Meter):
    pass


MODULE = ModuleType("rules")


def mutant(owner: Any, attribute: str, broken: Any) -> Mutant:
    return Mutant("planted", owner, attribute, broken, "books")


@pytest.mark.parametrize("owner", [Meter, Submeter])
def test_a_rule_is_broken_inside_the_block_alone(owner: type[Meter]) -> None:
    with mutant(owner, "read", lambda _meter: -1).alive():
        assert owner().read() == -1
    assert owner().read() == 7
    assert "read" not in vars(Submeter)


def test_a_rule_is_mended_when_the_run_raises() -> None:
    with pytest.raises(LookupError), mutant(Meter, "read", None).alive():
        raise LookupError
    assert Meter().read() == 7


def test_a_value_that_every_instance_sets_can_be_broken() -> None:
    zero = property(lambda _meter: 0, lambda _meter, _value: None)
    with mutant(Meter, "total", zero).alive():
        assert Meter().read() == 0
    assert Meter().read() == 7


def test_a_builtin_is_shadowed_in_its_module_alone() -> None:
    with mutant(MODULE, "max", min).alive():
        assert MODULE.max is min
        assert builtins.max(1, 2) == 2
    assert "max" not in vars(MODULE)


@pytest.mark.parametrize(
    ("owner", "attribute"),
    [(Meter, "renamed"), (Submeter, "total"), (MODULE, "renamed"), (object, "total")],
)
def test_an_attribute_that_does_not_exist_is_refused(owner: Any, attribute: str) -> None:
    with (
        pytest.raises(AttributeError, match=f"planted: .* has no {attribute}"),
        mutant(owner, attribute, None).alive(),
    ):
        pytest.fail("the block must not be entered")
    assert attribute not in vars(owner)


@pytest.mark.parametrize("rule", MUTANTS, ids=lambda rule: rule.name)
def test_every_mutant_breaks_a_rule_that_exists_and_mends_it(rule: Mutant) -> None:
    before = dict(vars(rule.owner))
    with rule.alive():
        assert vars(rule.owner)[rule.attribute] is rule.broken
    assert dict(vars(rule.owner)) == before


def test_faults_of_a_mutant_replace_those_that_its_seed_draws() -> None:
    drawn = next(rule for rule in MUTANTS if rule.faults is None)
    fixed = next(rule for rule in MUTANTS if rule.faults is not None)
    assert drawn.plan(3) == drawn.plan(3) != drawn.plan(4)
    assert fixed.plan(3).faults == fixed.plan(4).faults == fixed.faults
    assert fixed.plan(3).seed == 3
