"""The production hosts under seeded faults, and each rule shown to matter."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tunery.runtime.testing.mutants import MUTANTS, Mutant
from tunery.runtime.testing.scenario import play
from tunery.runtime.testing.sim import check

SEEDS = 300
MUTANT_SEEDS_MAX = 100


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Thousands of stand-downs are logged here; formatting them costs more than the runs."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_no_invariant_is_violated_in_three_hundred_seeds() -> None:
    faults: dict[str, int] = {}
    commands = void = 0
    for seed in range(1, SEEDS + 1):
        verdict = check(play(seed))
        assert not verdict.violations, (
            f"seed {seed}: {verdict.violations[0]}; replay it with "
            f"`python -m tunery.runtime.testing.sim --seed {seed} --trace`"
        )
        commands, void = commands + verdict.commands, void + verdict.void
        for kind, count in verdict.faults.items():
            faults[kind] = faults.get(kind, 0) + count
    # The runs were not idle: every kind of fault happened, and stale records were voided.
    assert commands > 20 * SEEDS
    assert void > SEEDS
    for kind in (
        "append lost",
        "append late",
        "append unanswered",
        "append doubled",
        "crash",
        "pause",
        "overlap",
        "clock jump",
        "journal records lost",
    ):
        assert faults.get(kind, 0) >= 20, f"too few of: {kind}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_caught(mutant: Mutant) -> None:
    for seed in range(1, MUTANT_SEEDS_MAX + 1):
        with mutant.alive():
            run = play(seed, forced=mutant.faults)
        violated = {violation.split(":")[0] for violation in check(run).violations}
        if violated & set(mutant.invariants):
            return
    pytest.fail(f"{mutant.name}: no seed up to {MUTANT_SEEDS_MAX} violates {mutant.invariants}")


def test_a_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    code = (
        "import logging; logging.disable(logging.CRITICAL)\n"
        "from tunery.runtime.testing.scenario import play\n"
        "print([play(seed).fingerprint() for seed in (3, 8, 9, 71, 160)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 5 * 32
