"""Next step after the end of an attempt."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.job import (
    AttemptEnded,
    JobEnded,
    PauseJob,
    RecordCheckpoint,
    RecordUsage,
    ResumeJob,
    WorkDescribed,
)
from schemas.reasons import ending, failing
from schemas.sealed import Sealed
from schemas.training import EvalWork
from services.scheduler.domain.job.policy import (
    BAD_NODE_RETRIES_MAX,
    FAILED_MAX,
    FRUITLESS_MAX,
    PLATFORM_RETRIES_MAX,
)
from services.scheduler.domain.job.quota import attempt_gpu_ms_max, billed_gpu_ms_max
from simulator.control_plane.samples import HYPER, MINUTE, checkpoint, limits, submit
from tests.unit.services.scheduler.domain.job.test_decide import HOUR, hold, hyper_of, placement_of
from tests.unit.services.scheduler.fold import of
from tests.unit.services.scheduler.lives import (
    JOB_ID,
    closed,
    granted,
    job_of,
    lived,
    new_tenant,
    pinned,
    prepared,
    started,
)
from tunery.gate.decision import ITEMS_MIN


@pytest.mark.parametrize("outcome", ["lost", "preempted", "not_started"])
def test_a_lost_or_preempted_attempt_is_repeated(outcome: Any) -> None:
    wanted = placement_of(lived("running").when(closed(outcome=outcome, billable=0)))
    assert (wanted.attempt, wanted.role) == (2, "train")


def test_a_job_without_progress_on_many_nodes_fails() -> None:
    decider = lived("running")
    for attempt in range(1, FRUITLESS_MAX + 1):
        decider.accept(closed(attempt, outcome="lost", billable=0))
    ended = of(decider.when(closed(FRUITLESS_MAX + 1, outcome="lost", billable=0)), JobEnded)
    assert ended.failure.code == errors.ATTEMPTS_EXHAUSTED


def test_a_checkpoint_is_progress() -> None:
    decider = lived("running")
    for attempt in range(1, 2 * FRUITLESS_MAX):
        decider.accept(
            RecordCheckpoint(job_id=JOB_ID, checkpoint=checkpoint(attempt, attempt=attempt)),
            closed(attempt, outcome="lost", billable=0),
        )
    assert job_of(decider) is not None


def test_training_m12_out_of_memory_keeps_the_step_and_the_checkpoint() -> None:
    """Finding M12: half the batch was another training, and began at step 0."""
    assert HYPER.batch_size == 4
    kept = checkpoint(10)
    decider = lived("running").accept(RecordCheckpoint(job_id=JOB_ID, checkpoint=kept))
    for attempt, micro_batches in enumerate((2, 4), start=1):
        events = decider.when(closed(attempt, outcome="failed", cause="oom"))
        assert hyper_of(events) == replace(HYPER, accumulation=micro_batches)
        assert placement_of(events).checkpoints == (kept,)
    again = placement_of(decider.when(closed(3, outcome="failed", cause="oom")))
    assert (again.attempt, again.checkpoints) == (4, (kept,)), "one row at a time, once more"
    ended = of(decider.when(closed(4, outcome="failed", cause="oom")), JobEnded)
    assert ended.failure.code == errors.OUT_OF_MEMORY
    assert ended.failure.reason == failing("memory_exceeded")


def test_training_m11_a_kill_from_outside_goes_on_from_the_checkpoint_unchanged() -> None:
    """Finding M11: the agent reports it as `platform`, and those attempts are limited."""
    kept = checkpoint(10)
    decider = lived("running").accept(RecordCheckpoint(job_id=JOB_ID, checkpoint=kept))
    job = job_of(decider)
    assert job is not None
    for attempt in range(1, PLATFORM_RETRIES_MAX + 1):
        events = decider.when(closed(attempt, outcome="failed", cause="platform", billable=0))
        again = placement_of(events)
        assert (again.work_id, again.checkpoints) == (job.work_id, (kept,))
    last = decider.when(closed(PLATFORM_RETRIES_MAX + 1, outcome="failed", cause="platform"))
    assert of(last, JobEnded).failure.code == errors.ATTEMPTS_EXHAUSTED


def test_training_m12_out_of_memory_while_pausing_still_halves_the_micro_batch_later() -> None:
    decider = lived("running").accept(PauseJob(job_id=JOB_ID))
    decider.accept(closed(outcome="failed", cause="oom"), ResumeJob(job_id=JOB_ID))
    events = decider.when(closed(2, outcome="failed", cause="oom"))
    assert hyper_of(events) == replace(HYPER, accumulation=2)


@pytest.mark.parametrize("cause", ["platform", "bad_node", "oom"])
def test_training_m11_a_job_that_fails_after_every_checkpoint_ends(cause: Any) -> None:
    """Finding M11: each checkpoint began a new count, so it was retried until its hold was used."""
    decider = lived("running")
    for attempt in range(1, FAILED_MAX + 2):
        further = checkpoint(attempt, attempt=attempt)
        decider.accept(RecordCheckpoint(job_id=JOB_ID, checkpoint=further))
        events = decider.when(closed(attempt, outcome="failed", cause=cause, billable=0))
        ended = [event for event in events if isinstance(event, JobEnded)]
        if ended:
            break
    (end,) = ended
    assert end.failure is not None
    if cause == "oom":
        assert (attempt, end.failure.code) == (4, errors.OUT_OF_MEMORY)
    else:
        assert (attempt, end.failure.code) == (FAILED_MAX + 1, errors.ATTEMPTS_EXHAUSTED)
        assert end.failure.reason == failing("attempts_failed", attempts=FAILED_MAX + 1)


def test_pauses_use_up_no_retries() -> None:
    decider = lived("running")
    for attempt in range(1, FRUITLESS_MAX + 2):
        decider.accept(PauseJob(job_id=JOB_ID), closed(attempt, outcome="preempted", billable=0))
        decider.accept(ResumeJob(job_id=JOB_ID))
    again = decider.when(closed(FRUITLESS_MAX + 2, outcome="lost", billable=0))
    assert placement_of(again).attempt == FRUITLESS_MAX + 3


def test_out_of_memory_at_batch_one_fails() -> None:
    decider = new_tenant().accept(limits(), submit(hyper=replace(HYPER, batch_size=1)))
    decider.accept(prepared(), pinned(), granted(), started())
    again = placement_of(decider.when(closed(outcome="failed", cause="oom")))
    assert again.attempt == 2, "another process may have used the memory"
    ended = of(decider.when(closed(2, outcome="failed", cause="oom")), JobEnded)
    assert ended.failure.code == errors.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        ("divergence", errors.DIVERGED),
        ("bad_data", errors.BAD_DATA),
        ("user", errors.USER_ERROR),
        ("nothing_learnt", errors.NOTHING_LEARNT),
    ],
)
def test_causes_that_a_retry_cannot_change_fail_at_once(cause: Any, code: str) -> None:
    decider = lived("running")
    decider.accept(RecordUsage(job_id=JOB_ID, attempt=1, hour_utc=HOUR, gpu_ms=MINUTE))
    ended = of(decider.when(closed(outcome="failed", cause=cause)), JobEnded)
    assert (ended.outcome, ended.failure.code) == ("failed", code)
    assert ended.released_gpu_ms == hold() - MINUTE


def test_sched_c15_a_job_larger_than_any_node_fails_with_what_the_pool_says() -> None:
    above: dict[str, str | int] = {"slots": 5, "largest": 4}
    end = closed(outcome="failed", cause="user", billable=0)
    reason = ending("slots_above_largest", **above)
    end = replace(end, end=replace(end.end, reason=reason, node_ids=()))
    failure = of(lived("running").when(end), JobEnded).failure
    assert (failure.code, failure.reason) == (
        errors.USER_ERROR,
        failing("slots_above_largest", **above),
    )


def test_a_bad_node_is_excluded() -> None:
    decider = lived("running")
    wanted = placement_of(decider.when(closed(outcome="failed", cause="bad_node")))
    assert wanted.excluded_nodes == ("a",)
    for attempt in range(2, BAD_NODE_RETRIES_MAX + 1):
        decider.accept(closed(attempt, outcome="failed", cause="bad_node"))
    last = decider.when(closed(BAD_NODE_RETRIES_MAX + 1, outcome="failed", cause="bad_node"))
    assert of(last, JobEnded).failure.code == errors.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize("cause", ["platform", None])
def test_platform_errors_are_retried_and_then_fail_the_job(cause: Any) -> None:
    decider = lived("running")
    for attempt in range(1, PLATFORM_RETRIES_MAX + 1):
        decider.accept(closed(attempt, outcome="failed", cause=cause, billable=0))
    last = decider.when(closed(PLATFORM_RETRIES_MAX + 1, outcome="failed", cause=cause))
    assert of(last, JobEnded).failure.code == errors.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize("cause", ["platform", "bad_node"])
def test_progress_begins_a_new_count_of_retries(cause: Any) -> None:
    decider = lived("running")
    most = 3 * (PLATFORM_RETRIES_MAX + 1)
    for attempt in range(1, most):
        further = checkpoint(attempt, attempt=attempt)
        decider.accept(
            RecordCheckpoint(job_id=JOB_ID, checkpoint=further),
            closed(attempt, outcome="failed", cause=cause, billable=0),
        )
    for attempt in range(most, most + PLATFORM_RETRIES_MAX):
        same = checkpoint(most - 1, attempt=attempt)
        decider.accept(RecordCheckpoint(job_id=JOB_ID, checkpoint=same))
        events = decider.when(closed(attempt, outcome="failed", cause=cause, billable=0))
    assert of(events, JobEnded).failure.code == errors.ATTEMPTS_EXHAUSTED


def test_a_success_of_the_wrong_kind_is_a_platform_error() -> None:
    right = closed()
    wrong = replace(right, end=replace(right.end, result=None))
    end = of(lived("running").when(wrong), AttemptEnded).end
    assert (end.outcome, end.cause) == ("failed", "platform")


def test_the_budget_ends_a_job_and_credits_extend_it() -> None:
    cap = placement_of(lived("validating").accept(prepared()).when(pinned())).max_gpu_ms
    spent = closed(outcome="failed", cause="budget", billable=cap)
    ended = of(lived("running").when(spent), JobEnded)
    assert ended.failure.code == errors.BUDGET_EXHAUSTED
    credited = replace(spent, end=replace(spent.end, lost_gpu_ms=10 * MINUTE))
    assert placement_of(lived("running").when(credited)).max_gpu_ms == 10 * MINUTE
    nothing_left = closed(outcome="preempted", billable=cap)
    ended = of(lived("running").when(nothing_left), JobEnded)
    assert ended.failure.code == errors.BUDGET_EXHAUSTED


def test_first_hour2_u7_an_evaluation_is_billed_no_more_than_its_training() -> None:
    trained = closed(billable=5 * MINUTE, lost=MINUTE)
    decider = lived("running")
    first = placement_of(decider.when(trained))
    assert (first.role, first.billed_gpu_ms_max) == ("eval", 4 * MINUTE)
    assert first.max_gpu_ms > 4 * MINUTE, "it may take longer, and ends all the same"
    decider.accept(trained)
    again = closed(2, "failed", "bad_node", "eval", billable=3 * MINUTE, lost=2 * MINUTE)
    assert placement_of(decider.when(again)).billed_gpu_ms_max == 3 * MINUTE


@pytest.mark.parametrize("asked", ["measures", "prompts"])
def test_first_hour2_u7_what_a_tenant_asks_for_besides_the_gate_is_billed(asked: str) -> None:
    job = job_of(lived("evaluating"))
    assert job is not None
    assert billed_gpu_ms_max(job, "eval") == MINUTE
    text = Sealed(key_id="t.1", nonce=b"n", ciphertext=b"c")
    job = replace(job, spec=replace(job.spec, **{asked: text}))
    assert billed_gpu_ms_max(job, "eval") is None


def test_first_hour2_u7_an_evaluation_that_uses_its_cap_is_not_begun_anew() -> None:
    """Unbilled time counts against the cap as billed time does."""
    decider = lived("evaluating")
    job = job_of(decider)
    assert job is not None
    spent = closed(2, "failed", "budget", "eval", billable=MINUTE)
    end = replace(spent.end, used_gpu_ms=attempt_gpu_ms_max(job, "eval"))
    ended = of(decider.when(replace(spent, end=end)), JobEnded)
    assert ended.failure.code == errors.BUDGET_EXHAUSTED


def test_first_hour2_u7_after_a_short_training_less_is_asked() -> None:
    job = job_of(lived("running"))
    assert job is not None
    assert job.hold is not None
    expected_ms = job.hold.eval_gpu_ms
    for trained_ms, asked in ((expected_ms - 1, (ITEMS_MIN, 2)), (expected_ms, (None, None))):
        events = lived("running").when(closed(billable=trained_ms * job.spec.slots))
        work = of(events, WorkDescribed).description.work
        assert isinstance(work, EvalWork)
        assert (work.questions_max, work.prompts_max) == asked
