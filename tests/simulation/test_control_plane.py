"""The scheduler and billing under seeded faults, and each of their rules shown to matter."""

from collections import Counter

import pytest

from simulator.control_plane.mutants import MUTANTS
from simulator.control_plane.plan import CONSEQUENCES, KINDS, Size
from simulator.control_plane.scenario import CONTROL_PLANE, ControlPlane
from simulator.event_core.mutants import Mutant
from tests.searches import CONTROL_PLANE_SEEDS, first_quick
from tests.simulation.shards import Shards
from tests.simulation.verdicts import sound

SEEDS = CONTROL_PLANE_SEEDS.full
SHARDS = Shards("control_plane", count=2, seeds=SEEDS // 2)
MUTANT_SEEDS_MAX = 2_000
MUTATED = ControlPlane(size=Size(patience_s=2_000))  # a job that never ends is run to the last
HOSTS = (
    *("account owner", "job owner", "pool owner", "projector ledger", "watcher of heartbeats"),
    "assignments of nodes",
    *(f"scheduler reactions to {stream}" for stream in ("job", "pool")),
    "billing reactions to account",
)


def test_no_invariant_is_violated_in_the_first_seeds() -> None:
    verdicts = [sound(CONTROL_PLANE, seed) for seed in range(1, CONTROL_PLANE_SEEDS.quick + 1)]
    assert all(verdict.counts["commands"] > 0 for verdict in verdicts)


@pytest.mark.parametrize("seed", [73000657, 74000468, 75000064])
def test_review2_m3_answers_are_counted_by_the_prices_that_bill_them(seed: int) -> None:
    """A plan moved to prices that were still on their way to its tenant."""
    assert sound(CONTROL_PLANE, seed).violations == []


@pytest.mark.parametrize("seed", [401728, 501229, 504467])
def test_two_exporters_announce_use_once(seed: int) -> None:
    """Both sent the announcement, and it was decided twice."""
    assert sound(CONTROL_PLANE, seed).violations == []


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS.count))
def test_no_invariant_is_violated_in_all_seeds_and_every_fault_occurs(
    shard: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sums = Counter[str]()
    for seed in SHARDS.seeds_of(shard):
        verdict = sound(CONTROL_PLANE, seed)
        sums.update(verdict.faults)
        sums.update(verdict.counts)
    total = SHARDS.add(tmp_path_factory, shard, sums)
    assert total is None or idle_kinds(total) == []


def idle_kinds(sums: Counter[str]) -> list[str]:
    """Kinds of faults that happened too rarely over all runs."""
    cancelled = (f"stray cancellation of {host}" for host in HOSTS)
    wanted = dict.fromkeys((*KINDS, *CONSEQUENCES, *cancelled), 0) | {
        "jobs": 2 * SEEDS,
        "leases": 4 * SEEDS,
    }
    return [kind for kind, more_than in wanted.items() if sums[kind] <= more_than]


@pytest.mark.timeout(900)  # where a seed has moved, others are played
@pytest.mark.parametrize(
    "mutant",
    first_quick(MUTANTS),
    ids=lambda mutant: mutant.name,
)
def test_a_broken_rule_is_caught(mutant: Mutant) -> None:
    seeds = range(mutant.seed, MUTANT_SEEDS_MAX + 1)
    verdicts = (MUTATED.play(MUTATED.plan(seed), broken=mutant.alive()) for seed in seeds)
    caught = any(mutant.invariant in verdict.violated for verdict in verdicts)
    assert caught, f"{mutant.name}: no seed up to {seeds[-1]} violates {mutant.invariant!r}"
