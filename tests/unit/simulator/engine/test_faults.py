"""Faults of a seed: the same in every process, in order of time, within their numbers."""

from collections import Counter
from random import Random

import pytest

from simulator.engine.faults import KINDS, LATER_KINDS, Faults, FaultStep, FaultTally, draw_faults

UNTIL_MS = 60_000
SEEDS = range(300)


def drawn(seed: int, kinds: dict[str, int] | None = None) -> Faults:
    return draw_faults(Random(seed), UNTIL_MS, dict(KINDS) if kinds is None else kinds)


@pytest.mark.parametrize("seed", [1, 2, 77])
def test_a_seed_draws_the_same_faults_each_time(seed: int) -> None:
    assert drawn(seed) == drawn(seed)
    assert drawn(seed) != drawn(seed + 1)


def test_steps_are_in_order_of_time_and_no_more_than_their_kind_allows() -> None:
    for seed in SEEDS:
        steps = drawn(seed).steps
        assert [step.at_ms for step in steps] == sorted(step.at_ms for step in steps)
        assert all(500 <= step.at_ms <= UNTIL_MS for step in steps)
        counts = Counter(step.kind for step in steps)
        assert all(count <= KINDS[kind] for kind, count in counts.items()), (seed, counts)


def test_every_kind_comes_in_about_a_third_of_the_runs() -> None:
    runs = [drawn(seed) for seed in SEEDS]
    for kind in KINDS:
        assert 60 < sum(faults.has(kind) for faults in runs) < 150, kind
    for name in ("lost", "late", "unanswered", "doubled", "stale_ends", "store_unanswered", "slow"):
        assert 60 < sum(getattr(faults, name) > 0 for faults in runs) < 150, name


def test_a_kind_that_came_later_leaves_the_rest_of_a_seed_as_it_was() -> None:
    older = {kind: most for kind, most in KINDS.items() if kind not in LATER_KINDS}
    differing = 0
    for seed in SEEDS:
        newer, before = drawn(seed), drawn(seed, older)
        kept = tuple(step for step in newer.steps if step.kind not in LATER_KINDS)
        assert kept == before.steps
        assert (newer.lost, newer.slow) == (before.lost, before.slow)
        differing += newer != before
    assert differing > 60
    rng, other = Random(3), Random(3)
    draw_faults(rng, UNTIL_MS)
    draw_faults(other, UNTIL_MS, older)
    assert rng.random() == other.random()  # what the seed draws next


def test_faults_know_their_kinds() -> None:
    faults = Faults(steps=(FaultStep(500, "crash"),))
    assert faults.has("crash")
    assert not faults.has("pause")
    assert drawn(1, {}).steps == ()


def test_a_tally_counts_what_happened() -> None:
    tally = FaultTally()
    tally.add("crash")
    tally.add("append lost", 4)
    tally.add("crash", 2)
    assert tally.counts == {"crash": 3, "append lost": 4}
