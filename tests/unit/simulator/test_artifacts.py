"""A plan of files and models decides its run, every mutant breaks a rule, and the books notice."""

from collections import Counter

import pytest

from schemas.dataset import DeleteFile, FileDeleted
from schemas.envelope import Rejected
from schemas.reasons import refusing
from simulator.artifacts.file_books import FileBooks
from simulator.artifacts.mutants import MUTANTS
from simulator.artifacts.people import REQUESTS, WEIGHTS
from simulator.artifacts.plan import CONSEQUENCES
from simulator.artifacts.scenario import ARTIFACTS
from simulator.event_core.mutants import Mutant
from tests.unit.simulator.replayed_plans import assert_a_plan_decides_the_run


def test_review2_w1_a_plan_of_artifacts_gives_the_same_verdict_again() -> None:
    assert_a_plan_decides_the_run(ARTIFACTS, 2)


@pytest.mark.parametrize("rule", MUTANTS, ids=lambda rule: rule.name)
def test_every_mutant_breaks_a_rule_that_exists_and_mends_it(rule: Mutant) -> None:
    before = dict(vars(rule.owner))
    with rule.alive():
        assert vars(rule.owner)[rule.attribute] is rule.broken
    assert dict(vars(rule.owner)) == before


def test_mutants_and_consequences_have_names_of_their_own() -> None:
    names = Counter((*(rule.name for rule in MUTANTS), *CONSEQUENCES))
    assert [name for name, count in names.items() if count > 1] == []


def test_people_ask_for_everything_but_what_plans_count() -> None:
    assert {*REQUESTS} - {*WEIGHTS} == {"drift"}


def test_books_notice_a_refusal_without_a_reason_and_a_deletion_without_a_file() -> None:
    books = FileBooks(is_good=lambda _: True)
    missing, refused = (
        DeleteFile(file_id="f"),
        Rejected(code="not_found", reason=refusing("parts_wrong")),
    )
    books.enter("acme", missing, (refused,), 1)
    assert books.violations == []
    books.enter("acme", missing, (FileDeleted(file_id="f", blob="b", report_blob=None),), 2)
    assert [line.split(":")[0] for line in books.violations] == ["refusal", "deletion"]
