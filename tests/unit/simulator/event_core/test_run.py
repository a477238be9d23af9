"""Plans of the scenario: the same for a seed each time, with rare faults as rarely as they say."""

from dataclasses import replace
from random import Random

import pytest

from examples.first_stream import SEATS, SEATS_AGGREGATE
from simulator.engine.broker import Broker
from simulator.engine.faults import Faults, FaultTally
from simulator.engine.virtual_loop import run_virtual
from simulator.event_core.releases import SEATS_STRICTER
from simulator.event_core.run import (
    FAULTY_MS,
    NEWEST,
    RARE,
    TAIL_LOST,
    EventCorePlan,
    EventCoreRun,
    plan,
)
from simulator.event_core.streams import TALLY, TALLY_AGGREGATE
from tunery.runtime.bus.abstract import Record

SEEDS = range(1, 501)


@pytest.fixture
def run() -> EventCoreRun:
    async def begin() -> EventCoreRun:
        tally = FaultTally()
        broker = Broker(Random(1), Faults(), tally, {})
        return EventCoreRun(EventCorePlan(1, Faults()), tally, broker)

    return run_virtual(begin())


def test_a_seed_draws_the_same_plan_each_time_with_steps_in_order_of_time() -> None:
    for seed in SEEDS:
        drawn = plan(seed)
        assert drawn == plan(seed)
        times = [step.at_ms for step in drawn.faults.steps]
        assert times == sorted(times)
        assert all(time <= FAULTY_MS for time in times)


@pytest.mark.parametrize("kind", RARE)
def test_rare_faults_come_about_as_often_as_they_say(kind: str) -> None:
    hits = sum(plan(seed).faults.has(kind) for seed in SEEDS)
    assert 0.5 * RARE[kind] < hits / len(SEEDS) < 1.5 * RARE[kind]


def test_a_lost_tail_comes_alone_among_the_rare_ones() -> None:
    """Most invariants are off then, so another rare fault would be played for nothing."""
    for seed in SEEDS:
        faults = plan(seed).faults
        if faults.has(TAIL_LOST):
            assert not any(faults.has(kind) for kind in RARE if kind != TAIL_LOST)


def test_each_process_decides_as_the_release_that_it_runs(run: EventCoreRun) -> None:
    assert run.decider(SEATS.name, "p7") is SEATS_AGGREGATE
    upgraded = replace(run, next_from=7, next_release=SEATS_STRICTER)
    assert upgraded.decider(SEATS.name, "p6") is SEATS_AGGREGATE
    assert upgraded.decider(SEATS.name, "p7") is SEATS_STRICTER
    assert upgraded.decider(TALLY.name, "p7") is TALLY_AGGREGATE
    back = replace(upgraded, back_from=9)
    assert back.decider(SEATS.name, "p8") is SEATS_STRICTER
    assert back.decider(SEATS.name, "p9") is SEATS_AGGREGATE
    assert back.decider(SEATS.name, f"p{NEWEST}") is SEATS_STRICTER


def test_only_real_losses_may_stop_a_host(run: EventCoreRun) -> None:
    lossy = replace(run, forgiven=["seats/3 at 7"])
    assert lossy.had_to_come("seats/3 at 7: the chain is broken")
    assert not lossy.had_to_come("seats/5 at 9: Invalid value 'SeatsPraised.v1'")
    assert not lossy.had_to_come("seats/4 at 7: the chain is broken")
    assert not run.had_to_come("seats/3 at 7: the chain is broken")


def test_a_fingerprint_is_of_all_that_was_written(run: EventCoreRun) -> None:
    prints = {run.fingerprint()}
    run.broker.history["t", 0].append(Record(0, 0, 5, b"k", b"a"))
    prints.add(run.fingerprint())
    run.broker.history["t", 0][0] = Record(0, 0, 6, b"k", b"a")
    prints.add(run.fingerprint())
    prints.add(replace(run, rows={"holds": {("c",): {"seats": 1}}}).fingerprint())
    assert len(prints) == 4
    assert run.fingerprint() in prints
