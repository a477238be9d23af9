"""The scheduler keeps its promises in random pools; each rule is shown to matter."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from simulator.event_core.mutants import Mutant
from tests.simulation.scheduling.mutants import OF_CLUSTERS, OF_EVALUATIONS, OF_POOLS
from tests.simulation.scheduling.planner_machine import PlannerMachine
from tests.simulation.scheduling.pool_machine import EvaluatedPoolMachine, PoolMachine
from tests.simulation.scheduling.rules import MISSING, Rule, Violation

MACHINES = {
    "pool": PoolMachine,
    "evaluations": EvaluatedPoolMachine,
    "cluster": PlannerMachine,
}
SHARDS, EXAMPLES = 8, 125  # of each machine: 3,000 in all, three quarters of them in `make soak`
QUICK_EXAMPLES, MUTANT_EXAMPLES, STEPS = 5, 400, 25
CAUGHT_WITHIN = 150  # examples; a seed that takes more is slow, and about to miss its mutant
MUTANTS = [
    *(("pool", mutant) for mutant in OF_POOLS),
    *(("evaluations", mutant) for mutant in OF_EVALUATIONS),
    *(("cluster", mutant) for mutant in OF_CLUSTERS),
]


def play(machine: type[RuleBasedStateMachine], first: int, examples: int, **changes: Any) -> None:
    """Play `examples` examples, always the same. Raises what the first bad one raises."""
    played = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **changes,
    )
    run_state_machine_as_test(seed(first)(machine), settings=played)


@pytest.mark.parametrize("name", MACHINES)
def test_the_scheduler_keeps_its_promises(name: str) -> None:
    play(MACHINES[name], 0, QUICK_EXAMPLES)
    assert MISSING, "what nothing can check is listed by name"


@pytest.mark.long
@pytest.mark.parametrize(
    "shard",
    [
        pytest.param(shard, marks=pytest.mark.soak if shard > SHARDS / 4 else ())
        for shard in range(1, SHARDS + 1)
    ],
)
@pytest.mark.parametrize("name", MACHINES)
def test_the_scheduler_keeps_its_promises_in_many_examples(name: str, shard: int) -> None:
    # The first bad example is shown as it is: to make it small takes minutes.
    play(MACHINES[name], shard, EXAMPLES, phases=(Phase.generate,))
    assert len(MACHINES) * SHARDS * EXAMPLES >= 3_000


@pytest.mark.long
@pytest.mark.parametrize(("name", "mutant"), MUTANTS, ids=[mutant.name for _, mutant in MUTANTS])
def test_a_broken_promise_is_caught(name: str, mutant: Mutant) -> None:
    broken, machine = Rule(mutant.invariant), MACHINES[name]
    examples = 0

    def begin(self: RuleBasedStateMachine) -> None:
        nonlocal examples
        examples += 1
        machine.__init__(self)

    changes = {"watched": frozenset({broken}), "__init__": begin}
    watching = type(f"Watching{broken.name}", (machine,), changes)
    with mutant.alive(), pytest.raises(Violation) as caught:
        play(watching, mutant.seed, MUTANT_EXAMPLES, phases=(Phase.generate,))
    assert caught.value.rule is broken
    assert examples <= CAUGHT_WITHIN, f"after {examples}: the seed has drifted, give it another"


def test_every_promise_is_broken_by_a_mutant() -> None:
    assert {mutant.invariant for _, mutant in MUTANTS} == {*Rule}
