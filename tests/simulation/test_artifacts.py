"""Ingest and registry under seeded faults, and each of their rules shown to matter."""

from collections import Counter

import pytest

from simulator.artifacts.mutants import MUTANTS
from simulator.artifacts.plan import CONSEQUENCES, KINDS, ArtifactsSize
from simulator.artifacts.scenario import ARTIFACTS, Artifacts
from simulator.event_core.mutants import Mutant
from tests.searches import ARTIFACTS_SEEDS, first_quick
from tests.simulation.verdicts import sound

MUTANT_SEEDS_MAX = 500
MUTATED = Artifacts(size=ArtifactsSize(patience_s=100))


def test_review2_w1_no_invariant_is_violated_in_the_first_seeds() -> None:
    verdicts = [sound(ARTIFACTS, seed) for seed in range(1, ARTIFACTS_SEEDS.quick + 1)]
    assert all(verdict.counts["commands"] > 0 for verdict in verdicts)


@pytest.mark.parametrize("seed", [511, 679, 1127, 1299, 2341])
def test_review2_w1_bytes_are_there_as_long_as_something_needs_them(seed: int) -> None:
    """Late work stored reports of deleted files, tries that were cut off left parts of a cache, and
    a report that a second file shared went with the first.
    """
    assert sound(ARTIFACTS, seed).violations == []


@pytest.mark.parametrize("seed", [410002])
def test_a_file_that_was_refused_is_not_granted_when_its_command_comes_again(seed: int) -> None:
    """Its bytes were gone, and its id was that of a file that had been deleted."""
    assert sound(ARTIFACTS, seed).violations == []


@pytest.mark.parametrize("seed", [505047, 880187])
def test_ids_are_sent_again_only_of_files_that_stay(seed: int) -> None:
    """Reports of a file went with those of a deleted one, whose id the world had given it."""
    assert sound(ARTIFACTS, seed).violations == []


@pytest.mark.parametrize("seed", [401437])
def test_no_verdict_is_on_a_version_that_is_not_published(seed: int) -> None:
    """Its publication forgot the verdict."""
    assert sound(ARTIFACTS, seed).violations == []


@pytest.mark.long
def test_review2_w1_no_invariant_is_violated_in_all_seeds_and_every_fault_occurs() -> None:
    faults = Counter[str]()
    for seed in range(1, ARTIFACTS_SEEDS.full + 1):
        faults.update(sound(ARTIFACTS, seed).faults)
    assert [kind for kind in (*KINDS, *CONSEQUENCES) if not faults[kind]] == []


@pytest.mark.timeout(900)  # where a seed has moved, others are played
@pytest.mark.parametrize("mutant", first_quick(MUTANTS), ids=lambda mutant: mutant.name)
def test_review2_w1_a_broken_rule_of_artifacts_is_caught(mutant: Mutant) -> None:
    seeds = range(mutant.seed, MUTANT_SEEDS_MAX + 1)
    verdicts = (MUTATED.play(MUTATED.plan(seed), broken=mutant.alive()) for seed in seeds)
    caught = any(mutant.invariant in verdict.violated for verdict in verdicts)
    assert caught, f"{mutant.name}: no seed up to {seeds[-1]} violates {mutant.invariant!r}"
