"""Ended work of a pool teaches how long the next takes; checkpoints, how long running work does."""

from typing import Any

from msgspec.structs import replace

from schemas.pool import ForgetWork, PlacementQueued, ReportCheckpoint
from schemas.training import ExpectedTime, NodeConstraints
from services.scheduler.domain.pool.carried import planned_pool
from services.scheduler.domain.pool.experience import classes_of
from simulator.control_plane.samples import (
    MINUTE,
    POOL,
    TRAINED,
    checkpoint,
    describe,
    node,
    request,
)
from tests.unit.services.scheduler.domain.pool.test_decide import (
    ALIVE,
    begun,
    exited,
    freed,
    pool,
    token,
)
from tests.unit.services.scheduler.fold import Decider, of
from tunery.plan.durations import SAMPLES_MIN
from tunery.plan.scheduling.requests import Running

ESTIMATE = 10 * MINUTE  # of `request`, whose limit is an hour


def ended(decider: Decider, number: int, ran_ms: int, **how: Any) -> Decider:
    """A job that has run for so long and ended, by default with success."""
    job_id = f"ftjob-done-{number}"
    incarnation = how.setdefault("incarnation", ALIVE)
    decider.accept(describe(job_id), request(job_id))
    decider.accept(begun(number, incarnation=incarnation, **how.pop("start", {})))
    decider.at += ran_ms
    outcome = {"outcome": "succeeded", "result": TRAINED} | how
    decider.accept(exited(number, elapsed_ms=ran_ms, **outcome))
    return decider.accept(freed(number, incarnation), ForgetWork(job_id=job_id))


def after(ran_ms: int, count: int = SAMPLES_MIN, **how: Any) -> PlacementQueued:
    """How a job is queued after `count` jobs that ended in this way."""
    decider = pool().accept(node())
    for number in range(1, count + 1):
        ended(decider, number, ran_ms, **how)
    queued: PlacementQueued = of(decider.when(request()), PlacementQueued)
    assert decider.refolded() == decider.state
    return queued


def running_lease(decider: Decider) -> Running:
    (lease,) = planned_pool(decider.state[POOL]).state.running.values()
    return lease


def test_successes_teach_how_long_the_next_takes() -> None:
    assert after(5 * MINUTE, SAMPLES_MIN - 1).expected is None
    assert after(5 * MINUTE).expected == ExpectedTime(p50_ms=5 * MINUTE, p90_ms=5 * MINUTE)
    assert after(20 * MINUTE).expected == ExpectedTime(p50_ms=20 * MINUTE, p90_ms=20 * MINUTE)


def test_what_failed_or_began_in_the_middle_teaches_nothing() -> None:
    assert after(5 * MINUTE, outcome="failed", cause="user", result=None).expected is None
    assert after(5 * MINUTE, start={"loaded_step": 20}).expected is None


def test_other_devices_and_other_numbers_of_slots_are_other_classes() -> None:
    decider = pool().accept(node())
    for number in range(1, SAMPLES_MIN + 1):
        ended(decider, number, 5 * MINUTE)
    for changes in ({"device": "cuda"}, {"slots": 2}, {"role": "eval"}):
        known = decider.state[POOL]
        names = classes_of(known, request(**changes).placement)
        assert not {*names} & {*known.durations}
    other = of(decider.when(request(tenant="globex")), PlacementQueued)
    assert other.expected is not None, "what other tenants did counts where it has nothing"


def test_work_that_names_a_model_of_devices_is_expected_by_what_ran_on_such() -> None:
    """Jobs on other models of the same kind of device counted as well."""
    decider = pool()
    for first, model, ran_ms in ((1, "a100", 20 * MINUTE), (9, "h200", 5 * MINUTE)):
        described = node(incarnation=model)
        decider.accept(replace(described, node=replace(described.node, accelerator=model)))
        for number in range(first, first + SAMPLES_MIN):
            ended(decider, number, ran_ms, incarnation=model)
    assert decider.refolded() == decider.state

    def expected_on(model: str) -> int:
        job_id = f"ftjob-on-{model}"
        decider.accept(describe(job_id))
        asked = request(job_id, constraints=NodeConstraints(accelerator=model))
        queued: PlacementQueued = of(decider.when(asked), PlacementQueued)
        assert queued.expected is not None
        return queued.expected.p50_ms

    assert (expected_on("a100"), expected_on("h200")) == (20 * MINUTE, 5 * MINUTE)
    assert 5 * MINUTE <= expected_on("") <= 20 * MINUTE


def test_the_planner_expects_what_ended_work_teaches() -> None:
    decider = pool().accept(node())
    for number in range(1, SAMPLES_MIN + 1):
        ended(decider, number, 20 * MINUTE)
    decider.accept(request())
    lease = running_lease(decider)
    assert (lease.p50_ms, lease.p90_ms) == (20 * MINUTE, 20 * MINUTE)
    assert lease.estimate_ms == ESTIMATE, "what a stop may cost is a share of its own estimate"


def test_a_checkpoint_tells_when_running_work_ends() -> None:
    decider = pool().accept(node(), request(), begun(total_steps=100))
    assert (running_lease(decider).p50_ms, running_lease(decider).p90_ms) == (ESTIMATE, 60 * MINUTE)
    decider.at += 10 * MINUTE
    saved = checkpoint(50, captured_ms=10 * MINUTE)
    decider.accept(ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=saved))
    lease = running_lease(decider)
    assert lease.p50_ms == 20 * MINUTE + MINUTE // 2
    assert lease.p90_ms < 25 * MINUTE


def test_a_slow_job_is_expected_at_its_limit_at_the_latest() -> None:
    decider = pool().accept(node(), request(), begun(total_steps=10_000))
    decider.at += 10 * MINUTE
    saved = checkpoint(20, captured_ms=10 * MINUTE)
    decider.accept(ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=saved))
    assert running_lease(decider).p90_ms == 60 * MINUTE
