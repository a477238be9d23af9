"""`make test` runs every search in full, whatever share of it `make check` runs."""

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from _pytest.mark.expression import Expression
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tests import searches
from tests.searches import Search
from tests.simulation import (
    test_control_plane,
    test_event_core,
    test_years_of_bills,
    test_years_of_exports,
)
from tests.unit.services.scheduler import test_domain
from tests.unit.services.scheduler.domain.pool import test_carried
from tests.unit.tunery.plan.scheduling import test_planning_state

ROOT: Final = Path(__file__).resolve().parents[2]
SEARCHES: Final = {name: s for name, s in vars(searches).items() if isinstance(s, Search)}
SET_BY_MAKE: Final = ("FULL", "MAKEFLAGS", "MAKEOVERRIDES")
QUICK_FOLDERS: Final = ("simulation", "histories", "repo", "contract", "unit")


@cache
def commands(target: str) -> tuple[list[str], ...]:
    """Words of the commands that `make TARGET` runs, without those of its set-up."""
    environment = {name: value for name, value in os.environ.items() if name not in SET_BY_MAKE}
    argv = ["make", "-n", target]
    done = subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    lines = done.stdout.replace("\\\n", " ").splitlines()
    return tuple(shlex.split(line) for line in lines if "-m pytest" in line)


def runs(command: list[str], folder: str, marks: frozenset[str]) -> bool:
    """Whether a pytest command runs a test with these marks in a folder of tests."""
    words = command[command.index("pytest") + 1 :]
    chosen = words[words.index("-m") + 1] if "-m" in words else ""

    def has(name: str, /, **_: str | int | bool | None) -> bool:
        return name in marks

    wanted = not chosen or Expression.compile(chosen).evaluate(has)
    return wanted and f"tests/{folder}" in words


@pytest.mark.parametrize("folder", QUICK_FOLDERS)
def test_a_quick_test_is_run_by_make_test_whatever_its_marks(folder: str) -> None:
    train = (False, True) if folder == "unit" else (False,)
    for trains, is_long, is_property in product(train, (False, True), (False, True)):
        marked = {"train": trains, "long": is_long, "hypothesis": is_property}
        marks = frozenset(name for name, has in marked.items() if has)
        assert any(runs(command, folder, marks) for command in commands("test")), sorted(marks)
        in_check = any(runs(command, folder, marks) for command in commands("check"))
        assert in_check is not (trains or is_long)


def test_only_make_check_leaves_out_tests_whose_results_still_hold() -> None:
    def uses(target: str) -> list[bool]:
        return ["tests.unchanged" in words for words in commands(target)]

    assert uses("check")
    assert all(uses("check"))
    assert not any(uses("test"))
    assert not any(uses("integration"))


def test_properties_are_tried_again_with_all_examples_by_make_test() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^integration: export HYPOTHESIS_PROFILE = repeatable$", text, re.MULTILINE)
    properties = frozenset({"hypothesis"})
    for folder in QUICK_FOLDERS:
        assert any(runs(command, folder, properties) for command in commands("integration"))
    profiles = {"quick": searches.EXAMPLES.quick, "repeatable": searches.EXAMPLES.full}
    for name, examples in profiles.items():
        assert settings.get_profile(name).max_examples == examples


def params(test: Any) -> list[tuple[int, bool]]:
    """The first parameter of each case of a test, and whether the case is `long`."""
    marks = {mark.name: mark for mark in test.pytestmark}
    _, values = marks["parametrize"].args
    return [
        (getattr(value, "values", (value,))[0], "long" in marks or _is_long(value))
        for value in values
    ]


def _is_long(value: Any) -> bool:
    return any(mark.name == "long" for mark in getattr(value, "marks", ()))


@pytest.mark.parametrize(
    ("test", "search", "step"),
    [
        (test_years_of_bills.test_money_conserved_in_random_years, searches.YEARS, 20),
        (
            test_years_of_exports.test_money_exported_rows_of_an_invoice_are_its_total,
            searches.YEARS,
            20,
        ),
        (
            test_domain.test_every_job_ends_and_the_books_agree_under_faults,
            searches.UNIT_WORLDS,
            1,
        ),
        (
            test_carried.test_the_plan_of_a_carried_pool_is_that_of_a_new_one,
            searches.CARRIED_POOLS,
            1,
        ),
        (
            test_planning_state.test_the_planner_keeps_its_invariants,
            searches.PLANNER_WALKS,
            1,
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_cases_are_all_seeds_and_those_of_the_share_are_not_long(
    test: Any, search: Search, step: int
) -> None:
    cases = params(test)
    assert [seed for seed, _ in cases] == list(range(0, search.full, step))
    assert [seed for seed, is_long in cases if not is_long] == list(range(0, search.quick, step))


@pytest.mark.parametrize(
    ("module", "search"),
    [
        (test_event_core, searches.EVENT_CORE_SEEDS),
        (test_control_plane, searches.CONTROL_PLANE_SEEDS),
    ],
    ids=["event core", "control plane"],
)
def test_shards_are_all_seeds_of_a_scenario(module: Any, search: Search) -> None:
    test = module.test_no_invariant_is_violated_in_all_seeds_and_every_fault_occurs
    cases = params(test)
    assert all(is_long for _, is_long in cases)
    seeds = [seed for shard, _ in cases for seed in module.SHARDS.seeds_of(shard)]
    assert seeds == list(range(1, search.full + 1))
    quick = module.test_no_invariant_is_violated_in_the_first_seeds
    assert not getattr(quick, "pytestmark", ())


BEFORE: Final = {
    "EVENT_CORE_SEEDS": 300,
    "CONTROL_PLANE_SEEDS": 60,
    "YEARS": 400,
    "UNIT_WORLDS": 80,
    "CARRIED_POOLS": 6,
    "EXAMPLES": 24,
}  # what `make test` ran before `make check` had shares; examples: see decision 0017


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_no_smaller_than_it_was_and_check_has_a_share_of_it(name: str) -> None:
    assert SEARCHES[name].full >= BEFORE.get(name, 1)
    assert 0 < SEARCHES[name].quick < SEARCHES[name].full


def examples() -> list[int]:
    """Examples of a property that has a seed of its own."""
    drawn: list[int] = []

    @seed(0)
    @settings(max_examples=200, database=None)
    @given(st.lists(st.integers()))
    def draw(numbers: list[int]) -> None:
        drawn.extend(numbers)

    draw()
    return drawn


def test_examples_do_not_depend_on_what_else_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    before = examples()
    assert len(before) > 200

    for path in (ROOT / "bench").rglob("*.py"):
        imported = ModuleType(path.stem)
        imported.__file__ = str(path)
        monkeypatch.setitem(sys.modules, f"imported_{path.stem}", imported)

    assert examples() == before
