"""Sweeps: one job after another, halving by validation loss, one budget, cancelled as a whole."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected
from schemas.job import (
    CancelJob,
    JobEnded,
    JobSubmitted,
    PauseJob,
    RecordUsage,
    RecordVerdict,
    RegistrationWanted,
    SetLimits,
    WorkDescribed,
)
from schemas.submission import Budget, Variant
from schemas.sweep import (
    CancelSweep,
    SubmitSweep,
    SweepCancelled,
    SweepEnded,
    SweepRun,
    SweepRungBegun,
    SweepRunSkipped,
    SweepTerms,
    SweepWaiting,
)
from schemas.units import HOUR_MS, hour_of
from services.scheduler.domain.job.sweeps import SWEEPS_MAX
from simulator.control_plane.samples import MINUTE, PASSED, TRAINED, limits, spec, submit, tokens
from tests.unit.services.scheduler.fold import Decider, names, of
from tests.unit.services.scheduler.lives import (
    REGISTERED,
    TENANT,
    closed,
    granted,
    new_tenant,
    pinned,
    prepared,
    started,
)
from tunery.billing.periods import period_of
from tunery.plan.estimate import estimate
from tunery.plan.micro_batches import rows_at_once

NEEDS = estimate(spec(), tokens())
VARIANT = Variant(run_id="x", hyper=spec().hyper)


def run(trial: int, rung: int = 0, steps: int = 0) -> SweepRun:
    hyper = replace(spec().hyper, rank=2 + trial, max_steps=steps)
    name = f"ftjob-{trial}-{rung}"
    return SweepRun(job_id=name, model_id=f"ft:{name}", hyper=hyper)


def sweep(count: int = 3, rungs: tuple[int, ...] = (), **changes: Any) -> SubmitSweep:
    """rungs: optimizer steps of each; half of the configurations go on."""
    survivors = tuple(max(1, count // 2 ** (rung + 1)) for rung in range(len(rungs) - 1))
    steps = rungs or (0,)
    terms = SweepTerms(
        sweep_id="sweep-1",
        method="halving" if rungs else "grid",
        spec=spec(),
        trials=tuple(
            tuple(run(trial, rung, most) for rung, most in enumerate(steps))
            for trial in range(count)
        ),
        survivors=survivors,
        tokens=tokens(),
        at_once=2,
    )
    return SubmitSweep(terms=replace(terms, **changes))


def submitted(events: tuple[Any, ...]) -> list[str]:
    return [event.job_id for event in events if isinstance(event, JobSubmitted)]


def finish(
    decider: Decider,
    job_id: str,
    loss_ppm: int,
    losses_ppm: tuple[int | None, ...] = (),
    left: int | None = None,
) -> tuple[Any, ...]:
    """Let a job run through; the events of its last command.

    losses_ppm, left: of its variants, and the one that its training leaves
    """
    result = replace(TRAINED, losses_ppm=losses_ppm, variant=left)
    summary = replace(PASSED, adapter_loss_ppm=loss_ppm)
    verdict = RecordVerdict(job_id=job_id, summary=summary)
    trained = closed(result=result)
    life = (prepared(), pinned(), granted(), started(), trained, closed(2, role="eval"))
    for fact in life:
        decider.accept(replace(fact, job_id=job_id))
    decider.accept(verdict)
    return decider.when(replace(REGISTERED, job_id=job_id))


def test_jobs_of_a_sweep_follow_each_other_and_the_best_is_named() -> None:
    decider = new_tenant().accept(limits())
    assert submitted(decider.when(sweep())) == ["ftjob-0-0", "ftjob-1-0"]
    jobs = decider.state[TENANT].jobs
    assert sorted(job.spec.hyper.rank for job in jobs.values()) == [2, 3]
    assert {job.spec.sweep_id for job in jobs.values()} == {"sweep-1"}
    assert submitted(finish(decider, "ftjob-1-0", 500_000)) == ["ftjob-2-0"]
    assert submitted(finish(decider, "ftjob-0-0", 900_000)) == []
    ended = of(finish(decider, "ftjob-2-0", 700_000), SweepEnded)
    assert (ended.outcome, ended.best_job_id) == ("completed", "ftjob-1-0")
    assert not decider.state[TENANT].sweeps
    assert decider.refolded() == decider.state


def test_the_better_half_goes_on_with_more_steps() -> None:
    decider = new_tenant().accept(limits())
    decider.when(sweep(4, rungs=(10, 20, 40), at_once=4))
    losses = {0: 900_000, 1: 300_000, 2: 400_000, 3: 800_000}
    for trial in (0, 1, 2):
        assert names(finish(decider, f"ftjob-{trial}-0", losses[trial]))[-1] == "JobEnded"
    events = finish(decider, "ftjob-3-0", losses[3])
    assert of(events, SweepRungBegun).trials == (1, 2)
    assert submitted(events) == ["ftjob-1-1", "ftjob-2-1"]
    steps = {job.spec.hyper.max_steps for job in decider.state[TENANT].jobs.values()}
    assert steps == {20}
    finish(decider, "ftjob-1-1", 350_000)
    events = finish(decider, "ftjob-2-1", 250_000)
    assert (of(events, SweepRungBegun).rung, submitted(events)) == (2, ["ftjob-2-2"])
    ended = of(finish(decider, "ftjob-2-2", 200_000), SweepEnded)
    assert ended.best_job_id == "ftjob-2-2"


def test_a_job_without_a_loss_does_not_go_on() -> None:
    decider = new_tenant().accept(limits())
    decider.when(sweep(2, rungs=(10, 20)))
    decider.when(CancelJob(job_id="ftjob-0-0"))
    events = finish(decider, "ftjob-1-0", -1)  # not measured
    ended = of(events, SweepEnded)
    assert (ended.outcome, ended.best_job_id) == ("completed", None)


def test_a_sweep_waits_for_what_its_tenant_may_have_at_once() -> None:
    decider = new_tenant().accept(limits(concurrency=1), submit("ftjob-other"))
    assert submitted(decider.when(sweep())) == []
    assert submitted(decider.when(CancelJob(job_id="ftjob-other"))) == ["ftjob-0-0"]
    assert submitted(decider.when(limits(concurrency=2))) == ["ftjob-1-0"]


@pytest.mark.parametrize(
    "frees",
    [
        (PauseJob(job_id="ftjob-other"),),
        (PauseJob(job_id="ftjob-more"), PauseJob(job_id="ftjob-other")),
        (CancelJob(job_id="ftjob-more"), PauseJob(job_id="ftjob-other")),
    ],
)
def test_review2_s2_a_sweep_takes_the_place_that_any_command_frees(frees: tuple[Any, ...]) -> None:
    others = ("ftjob-other", "ftjob-more")[: len(frees)]
    decider = new_tenant().accept(limits(concurrency=len(others)), *map(submit, others))
    events = decider.when(sweep())
    assert of(events, SweepWaiting).reason.code == "jobs_at_most"
    begun = [job_id for command in frees for job_id in submitted(decider.when(command))]
    assert begun == ["ftjob-0-0", "ftjob-1-0"][: len(frees)]
    assert decider.state[TENANT].sweeps["sweep-1"].waits_for is None
    assert decider.refolded() == decider.state


def test_review2_s2_a_paused_job_that_leaves_its_machine_frees_its_place() -> None:
    decider = new_tenant().accept(limits(concurrency=1), submit("ftjob-other"))
    for fact in (prepared(), pinned(), granted(), started()):
        decider.accept(replace(fact, job_id="ftjob-other"))
    assert submitted(decider.when(sweep())) == []
    assert submitted(decider.when(PauseJob(job_id="ftjob-other"))) == []  # it writes a checkpoint
    stopped = replace(closed(outcome="preempted", ended_by="tenant"), job_id="ftjob-other")
    assert submitted(decider.when(stopped)) == ["ftjob-0-0"]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_review2_s2_a_plan_that_comes_into_force_lets_a_sweep_go_on(concurrency: int) -> None:
    others = tuple(f"ftjob-x{number}" for number in range(concurrency))
    decider = new_tenant().accept(limits(concurrency=concurrency), *map(submit, others))
    begins = decider.at + 3 * HOUR_MS
    decider.accept(sweep(), replace(limits(concurrency=concurrency + 2), effective_at=begins))
    assert decider.due() == begins
    assert submitted(decider.tick()) == ["ftjob-0-0", "ftjob-1-0"]


@pytest.mark.parametrize("hard", [NEEDS.hold_gpu_ms, 2 * NEEDS.hold_gpu_ms - 1])
def test_review2_s2_a_sweep_waits_for_the_new_month_and_goes_on_in_it(hard: int) -> None:
    decider = new_tenant().accept(limits(hard=hard))
    assert submitted(decider.when(sweep())) == ["ftjob-0-0"]
    use = RecordUsage(
        job_id="ftjob-0-0", attempt=1, hour_utc=hour_of(decider.at), gpu_ms=NEEDS.hold_gpu_ms
    )
    decider.accept(use)
    events = finish(decider, "ftjob-0-0", 500_000)
    assert of(events, SweepWaiting).reason.code == "hard_limit"
    assert decider.due() == period_of(decider.at).end_ms
    events = decider.tick()
    assert names(events)[0] == "AdmissionsReviewed"
    assert submitted(events) == ["ftjob-1-0"]
    assert decider.refolded() == decider.state


def test_review2_s2_a_job_that_no_month_has_room_for_is_skipped() -> None:
    decider = new_tenant().accept(limits())
    assert submitted(decider.when(sweep(at_once=1))) == ["ftjob-0-0"]
    decider.accept(limits(hard=NEEDS.hold_gpu_ms - 1))
    events = finish(decider, "ftjob-0-0", 500_000)
    skipped = [event.job_id for event in events if isinstance(event, SweepRunSkipped)]
    assert skipped == ["ftjob-1-0", "ftjob-2-0"]
    assert of(events, SweepEnded).outcome == "completed"


CHANGED = [
    (limits(concurrency=1, price_version="2027-01"), "prices_changed"),
    (limits(concurrency=1, lane="free"), "plan_changed"),
    (limits(concurrency=1, lane="free", price_version="2027-01"), "prices_changed"),
]


@pytest.mark.parametrize(("change", "reason"), CHANGED)
def test_review2_s3_a_sweep_whose_prices_changed_stops_and_says_why(
    change: SetLimits, reason: str
) -> None:
    decider = new_tenant().accept(limits(concurrency=1))
    assert submitted(decider.when(sweep())) == ["ftjob-0-0"]
    assert not any(isinstance(event, SweepEnded) for event in decider.when(change))
    events = finish(decider, "ftjob-0-0", 500_000)
    ended = of(events, SweepEnded)
    assert (ended.outcome, ended.best_job_id) == ("stopped", "ftjob-0-0")
    assert ended.reason.code == reason
    assert not any(isinstance(event, SweepRunSkipped) for event in events)
    assert not decider.state[TENANT].sweeps
    assert decider.due() is None


@pytest.mark.parametrize(("change", "reason"), CHANGED)
def test_review2_s3_prices_that_change_with_the_month_stop_a_sweep_that_waits(
    change: SetLimits, reason: str
) -> None:
    decider = new_tenant().accept(limits(concurrency=1), submit("ftjob-other"), sweep())
    begins = period_of(decider.at).end_ms
    decider.accept(replace(change, effective_at=begins))
    decider.at = begins
    ended = of(decider.when(PauseJob(job_id="ftjob-other")), SweepEnded)
    assert (ended.outcome, ended.reason.code) == ("stopped", reason)


@pytest.mark.parametrize("count", [2, 3])
def test_the_money_of_a_sweep_counts_what_is_held(count: int) -> None:
    budget = Budget(max_amount_micro=count * NEEDS.price_max_micro - 1)
    decider = new_tenant().accept(limits())
    events = decider.when(sweep(4, at_once=4, budget=budget))
    assert submitted(events) == [f"ftjob-{trial}-0" for trial in range(count - 1)]


def test_the_budget_of_a_sweep_is_never_passed() -> None:
    """What is open counts with its whole hold, so two jobs never share what one may need."""
    decider = new_tenant().accept(limits())
    budget = Budget(max_gpu_ms=NEEDS.hold_gpu_ms + MINUTE)
    events = decider.when(sweep(budget=budget))
    assert submitted(events) == ["ftjob-0-0"]
    events = finish(decider, "ftjob-0-0", 1)  # it used two minutes
    assert submitted(events) == []
    skipped = [event for event in events if isinstance(event, SweepRunSkipped)]
    assert [event.job_id for event in skipped] == ["ftjob-1-0", "ftjob-2-0"]
    assert skipped[0].reason.code == "sweep_budget_gpu_hours"
    assert skipped[0].reason.params["used_gpu_ms"] == 2 * MINUTE
    assert of(events, SweepEnded).best_job_id == "ftjob-0-0"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"budget": Budget(max_gpu_ms=1)}, errors.BUDGET_TOO_SMALL),
        ({"budget": Budget(max_amount_micro=1)}, errors.BUDGET_TOO_SMALL),
        ({"trials": ()}, errors.MALFORMED),
        ({"trials": ((run(0),), (run(1), run(1, 1)))}, errors.MALFORMED),
        ({"survivors": (1,)}, errors.MALFORMED),
        ({"at_once": 0}, errors.MALFORMED),
    ],
)
def test_a_sweep_that_could_not_begin_is_refused(changes: dict[str, Any], code: str) -> None:
    decider = new_tenant().accept(limits())
    (refused,) = decider.when(sweep(**changes))
    assert isinstance(refused, Rejected)
    assert refused.code == code
    assert not decider.state[TENANT].sweeps


def test_a_tenant_has_so_many_sweeps_at_once() -> None:
    decider = new_tenant().accept(limits())
    first = sweep(1)
    decider.accept(first)
    assert of(decider.when(first), Rejected).code == errors.ALREADY_EXISTS
    for number in range(SWEEPS_MAX - 1):
        again = replace(run(0), job_id=f"ftjob-x{number}")
        decider.accept(sweep(1, sweep_id=f"sweep-x{number}", trials=((again,),)))
    full = decider.when(sweep(1, sweep_id="sweep-y"))
    assert of(full, Rejected).reason.code == "sweeps_at_most"


def test_to_cancel_a_sweep_ends_its_open_jobs_and_begins_no_more() -> None:
    decider = new_tenant().accept(limits())
    decider.accept(sweep(4))
    events = decider.when(CancelSweep(sweep_id="sweep-1"))
    assert names(events)[0] == SweepCancelled.__name__
    ended = [event.job_id for event in events if isinstance(event, JobEnded)]
    assert ended == ["ftjob-0-0", "ftjob-1-0"]
    assert of(events, SweepEnded).outcome == "cancelled"
    missing = of(decider.when(CancelSweep(sweep_id="sweep-1")), Rejected)
    assert missing.code == errors.NOT_FOUND


def test_a_cancelled_sweep_ends_with_the_last_of_its_jobs() -> None:
    decider = new_tenant().accept(limits())
    decider.accept(sweep(2))
    for fact in (prepared(), pinned(), granted(), started()):
        decider.accept(replace(fact, job_id="ftjob-0-0"))
    events = decider.when(CancelSweep(sweep_id="sweep-1"))
    assert [event.job_id for event in events if isinstance(event, JobEnded)] == ["ftjob-1-0"]
    assert decider.when(CancelSweep(sweep_id="sweep-1")) == ()
    stopped = closed(outcome="preempted", ended_by="tenant")
    events = decider.when(replace(stopped, job_id="ftjob-0-0"))
    assert of(events, SweepEnded).outcome == "cancelled"


def variants(decider: Decider, job_id: str) -> list[str]:
    return [variant.run_id for variant in decider.state[TENANT].jobs[job_id].spec.variants]


def test_configurations_take_turns_in_one_job_and_the_best_of_it_is_published() -> None:
    decider = new_tenant().accept(limits())
    assert submitted(decider.when(sweep(5, colocate=2, at_once=3))) == [
        *("ftjob-0-0", "ftjob-1-0", "ftjob-3-0")
    ]
    assert [variants(decider, f"ftjob-{trial}-0") for trial in (0, 1, 3)] == [
        ["ftjob-0-0"],
        ["ftjob-1-0", "ftjob-2-0"],
        ["ftjob-3-0", "ftjob-4-0"],
    ]
    finish(decider, "ftjob-0-0", 480_000, (500_000,), left=0)
    for fact in (prepared(), pinned(), granted(), started()):
        decider.accept(replace(fact, job_id="ftjob-1-0"))
    result = replace(TRAINED, losses_ppm=(None, 300_000), variant=1)
    events = decider.when(replace(closed(result=result), job_id="ftjob-1-0"))
    # from here on the job is one of the configuration that its training has left
    job = decider.state[TENANT].jobs["ftjob-1-0"]
    assert job.hyper == job.spec.hyper == run(2).hyper
    assert of(events, WorkDescribed).description.work.seed == run(2).hyper.seed
    decider.accept(replace(closed(2, role="eval"), job_id="ftjob-1-0"))
    registration = of(
        decider.when(RecordVerdict(job_id="ftjob-1-0", summary=PASSED)), RegistrationWanted
    )
    assert registration.terms.model_id == "ft:ftjob-1-0"
    decider.accept(replace(REGISTERED, job_id="ftjob-1-0"))
    ended = of(finish(decider, "ftjob-3-0", 420_000, (400_000, 450_000), left=0), SweepEnded)
    assert ended.best_job_id == "ftjob-1-0"
    assert decider.refolded() == decider.state


def test_the_best_of_all_jobs_go_on_together() -> None:
    decider = new_tenant().accept(limits())
    decider.when(sweep(4, rungs=(10, 20), colocate=2, at_once=4))
    finish(decider, "ftjob-0-0", 1, (900_000, 300_000), left=1)
    events = finish(decider, "ftjob-2-0", 1, (400_000, 800_000), left=0)
    assert of(events, SweepRungBegun).trials == (1, 2)
    assert submitted(events) == ["ftjob-1-1"]
    assert variants(decider, "ftjob-1-1") == ["ftjob-1-1", "ftjob-2-1"]
    # without a version of the last rung, the best one of the rung before is named
    events = decider.when(CancelJob(job_id="ftjob-1-1"))
    assert of(events, SweepEnded).best_job_id == "ftjob-0-0"


def test_a_budget_holds_for_all_that_take_turns() -> None:
    two = estimate(replace(spec(), variants=(VARIANT, VARIANT)), tokens()).hold_gpu_ms
    decider = new_tenant().accept(limits())
    events = decider.when(sweep(4, colocate=2, budget=Budget(max_gpu_ms=two)))
    assert submitted(events) == ["ftjob-0-0"]
    events = finish(decider, "ftjob-0-0", 1, (500_000, 600_000), left=0)
    skipped = [event.job_id for event in events if isinstance(event, SweepRunSkipped)]
    assert skipped == ["ftjob-2-0", "ftjob-3-0"]
    assert of(events, SweepEnded).best_job_id == "ftjob-0-0"


def test_without_memory_all_that_take_turns_get_smaller_micro_batches() -> None:
    decider = new_tenant().accept(limits())
    terms = sweep(2, colocate=2).terms
    large = tuple(
        (replace(first, hyper=replace(first.hyper, batch_size=rows)),)
        for rows, (first,) in zip((2, 8), terms.trials, strict=True)
    )
    decider.when(SubmitSweep(terms=replace(terms, trials=large)))
    for fact in (prepared(), pinned(), granted(), started()):
        decider.accept(replace(fact, job_id="ftjob-0-0"))
    events = decider.when(replace(closed(outcome="failed", cause="oom"), job_id="ftjob-0-0"))
    work = of(events, WorkDescribed).description.work
    assert [rows_at_once(hyper) for hyper in work.variants] == [2, 4]
    assert rows_at_once(work.hyper) == 4
