"""The production hosts under seeded faults, and each rule shown to matter."""

from collections import Counter

import pytest

from simulator.engine.faults import KINDS
from simulator.event_core.mutants import MUTANTS, Mutant
from simulator.event_core.run import ARCHIVED, RARE
from simulator.event_core.scenario import EVENT_CORE
from tests.searches import EVENT_CORE_SEEDS, first_quick
from tests.simulation.shards import Shards
from tests.simulation.verdicts import sound

SEEDS = EVENT_CORE_SEEDS.full
SHARDS = Shards("event_core", count=3, seeds=SEEDS // 3)
MUTANT_SEEDS_MAX = 2_000
FAULTS = (
    *KINDS,
    *RARE,
    ARCHIVED,
    "archiving killed",
    "records archived",
    "append lost",
    "append late",
    "append unanswered",
    "append doubled",
    "append slow",
    "append after a newer claim",
    "stale end",
    "store unanswered",
    "effect failed",
)


def test_no_invariant_is_violated_in_the_first_seeds() -> None:
    verdicts = [sound(EVENT_CORE, seed) for seed in range(1, EVENT_CORE_SEEDS.quick + 1)]
    assert all(verdict.counts["commands"] > 0 for verdict in verdicts)


@pytest.mark.parametrize("seed", [401467, 504376])
def test_two_pauses_of_one_process_leave_no_partition_without_a_reader(seed: int) -> None:
    assert sound(EVENT_CORE, seed).violations == []


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS.count))
def test_no_invariant_is_violated_in_all_seeds_and_every_fault_occurs(
    shard: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sums = Counter[str]()
    for seed in SHARDS.seeds_of(shard):
        verdict = sound(EVENT_CORE, seed)
        sums.update(verdict.faults)
        sums.update(verdict.counts)
        sums["voided"] += verdict.voided
    total = SHARDS.add(tmp_path_factory, shard, sums)
    assert total is None or idle_kinds(total) == []


def idle_kinds(sums: Counter[str]) -> list[str]:
    """Kinds of faults that happened too rarely over all runs."""
    wanted = dict.fromkeys(FAULTS, 9) | {
        "commands": 20 * SEEDS,
        "voided": SEEDS,
        "losses named": 0,
        "differing": 0,
        "praised": 0,
        "remarked": 0,
        "refused below a level": 0,
    }
    return [kind for kind, more_than in wanted.items() if sums[kind] <= more_than]


@pytest.mark.parametrize(
    "mutant",
    first_quick(MUTANTS),
    ids=lambda mutant: f"{mutant.name}, seed {mutant.seed}: {mutant.invariant}",
)
def test_a_broken_rule_is_caught(mutant: Mutant) -> None:
    seeds = range(mutant.seed, MUTANT_SEEDS_MAX + 1)
    verdicts = (EVENT_CORE.play(mutant.plan(seed), broken=mutant.alive()) for seed in seeds)
    assert any(mutant.invariant in verdict.violated for verdict in verdicts), (
        f"{mutant.name}: no seed up to {MUTANT_SEEDS_MAX} violates {mutant.invariant!r}"
    )
