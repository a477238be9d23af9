"""Job: given what happened, when a command comes, then these events."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected
from schemas.integrations import MirrorReport, MirrorReported, RecordMirror
from schemas.job import (
    AttemptEnded,
    AttemptStarted,
    BaseBound,
    CancelJob,
    CheckpointRecorded,
    DatasetBound,
    FileNoted,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    PauseJob,
    PhaseSet,
    PinsWanted,
    PlacementWanted,
    RecordCheckpoint,
    RecordDraining,
    RecordFile,
    RecordRegistered,
    RecordUsage,
    RecordVerdict,
    RecordWait,
    RegistrationWanted,
    ResumeJob,
    UsageCounted,
    VerdictDue,
    WorkDescribed,
)
from schemas.pool import EndAuthor, Placement
from schemas.reasons import Failure, failing, refusing, rejecting, skipping, waiting
from schemas.sealed import Sealed
from schemas.training import (
    AdapterStart,
    EvalWork,
    HyperParameters,
    SkippedCheckpoint,
    TrainWork,
    Work,
    work_id_of,
)
from schemas.units import HOUR_MS
from simulator.control_plane.samples import (
    FILE,
    MINUTE,
    PASSED,
    T0,
    TRAINED,
    checkpoint,
    limits,
    spec,
    submit,
    tokens,
)
from tests.unit.services.scheduler.fold import Decider, names, of, open_gpu_ms
from tests.unit.services.scheduler.lives import (
    JOB_ID,
    REGISTERED,
    SCORED_LIFE,
    TENANT,
    VERDICT,
    closed,
    granted,
    job_of,
    lived,
    new_tenant,
    pinned,
    prepared,
    started,
)
from tunery.plan.estimate import eval_hold

HOUR = T0 // HOUR_MS


def hold() -> int:
    return of(new_tenant().accept(limits()).when(submit()), HoldTaken).estimate.hold_gpu_ms  # type: ignore[no-any-return]  # events are of any kind here


def rejected(events: tuple[Any, ...]) -> str:
    assert len(events) == 1
    return str(of(events, Rejected).code)


def placement_of(events: tuple[Any, ...]) -> Placement:
    """The one placement that these events ask for."""
    placement: Placement = of(events, PlacementWanted).placement
    return placement


def work_of(events: tuple[Any, ...]) -> Work:
    """The one work that these events describe."""
    work: Work = of(events, WorkDescribed).description.work
    return work


def hyper_of(events: tuple[Any, ...]) -> HyperParameters:
    work = work_of(events)
    assert isinstance(work, TrainWork)
    return work.hyper


# --- admission ------------------------------------------------------------------------------------


def test_a_submission_takes_its_hold_and_asks_for_pins() -> None:
    events = new_tenant().accept(limits()).when(submit())
    assert names(events) == ["JobSubmitted", "HoldTaken", "PinsWanted", "PhaseSet"]
    assert of(events, HoldTaken).overage is False
    pins = of(events, PinsWanted)
    assert (pins.terms.training_file, pins.terms.spec.base_id, pins.terms.spec.max_length) == (
        "file-1",
        "smol",
        512,
    )
    assert of(events, PhaseSet).reason is not None


def test_bases_f7_what_is_prepared_drops_reasoning_where_the_job_does() -> None:
    asked = submit()
    dropping = replace(asked, spec=replace(asked.spec, reasoning="drop"))
    kept, dropped = (
        of(new_tenant().accept(limits()).when(command), PinsWanted).terms.spec.reasoning
        for command in (asked, dropping)
    )
    assert (kept, dropped) == ("keep", "drop")


def test_a_tenant_without_limits_is_not_found() -> None:
    assert rejected(new_tenant().when(submit())) == errors.NOT_FOUND
    assert rejected(new_tenant().when(CancelJob(job_id=JOB_ID))) == errors.NOT_FOUND


def test_a_job_id_is_used_once_even_after_its_end() -> None:
    decider = lived("validating")
    assert rejected(decider.when(submit())) == errors.ALREADY_EXISTS
    decider.accept(CancelJob(job_id=JOB_ID))
    assert rejected(decider.when(submit())) == errors.ALREADY_EXISTS


def test_slots_must_be_positive() -> None:
    events = new_tenant().accept(limits()).when(submit(slots=0))
    assert of(events, Rejected).param == "slots"


def test_a_job_is_billed_by_the_prices_it_was_shown() -> None:
    newer = replace(spec().price, version="2026-12")
    events = new_tenant().accept(limits()).when(submit(price=newer))
    assert rejected(events) == errors.ILLEGAL_STATE


def test_concurrency_counts_jobs_that_are_wanted_to_run() -> None:
    decider = new_tenant().accept(limits(concurrency=1), submit("ftjob-1"))
    assert rejected(decider.when(submit("ftjob-2"))) == errors.CONCURRENCY_LIMIT
    decider.accept(PauseJob(job_id="ftjob-1"), submit("ftjob-2"))
    assert rejected(decider.when(ResumeJob(job_id="ftjob-1"))) == errors.CONCURRENCY_LIMIT
    decider.accept(CancelJob(job_id="ftjob-2"), ResumeJob(job_id="ftjob-1"))


def test_sched_c15_a_stopping_job_counts_until_it_has_stopped() -> None:
    """Finding C15: pause and submit ran eight jobs at once under a limit of one."""
    decider = lived("running").accept(limits(concurrency=1), PauseJob(job_id=JOB_ID))
    (refused,) = decider.when(submit("ftjob-2"))
    assert refused.reason == refusing("jobs_at_most", limit=1)
    assert names(decider.when(ResumeJob(job_id=JOB_ID))) == ["WantedSet"], "it counts for others"
    decider.accept(PauseJob(job_id=JOB_ID), closed(outcome="preempted", ended_by="tenant"))
    decider.accept(submit("ftjob-2"))


def test_the_hard_limit_may_be_reached_but_not_exceeded() -> None:
    decider = new_tenant().accept(limits(hard=2 * hold()), submit("ftjob-1"), submit("ftjob-2"))
    events = decider.when(submit("ftjob-3"))
    assert rejected(events) == errors.HARD_LIMIT
    assert of(events, Rejected).reason == refusing(
        "hard_limit", hold_gpu_ms=hold(), left_gpu_ms=0, limit_gpu_ms=2 * hold()
    )
    decider.accept(CancelJob(job_id="ftjob-1"), submit("ftjob-3"))


def test_above_the_soft_limit_is_overage() -> None:
    decider = new_tenant().accept(limits(soft=hold()))
    assert of(decider.when(submit("ftjob-1")), HoldTaken).overage is False
    assert of(decider.when(submit("ftjob-2")), HoldTaken).overage is True


def test_a_lowered_limit_applies_to_new_jobs_only() -> None:
    decider = lived("running").accept(limits(hard=1))
    assert rejected(decider.when(submit("ftjob-2"))) == errors.HARD_LIMIT
    assert "PlacementWanted" in names(decider.when(closed()))


def test_bad_input_a_quota_lowered_under_what_runs_ends_nothing_and_counts_all_of_it() -> None:
    decider = lived("running").accept(limits(hard=1))
    used = RecordUsage(job_id=JOB_ID, attempt=1, hour_utc=HOUR, gpu_ms=10 * MINUTE)
    assert "PlacementUnwanted" not in names(decider.when(used))
    assert rejected(decider.when(submit("ftjob-2"))) == errors.HARD_LIMIT
    assert "PlacementWanted" in names(decider.when(closed()))
    assert sum(decider.state[TENANT].used_gpu_ms.values()) == 10 * MINUTE
    assert decider.refolded() == decider.state


def test_use_of_an_earlier_month_does_not_count() -> None:
    decider = new_tenant().accept(limits(hard=hold()))
    used = RecordUsage(job_id="ftjob-0", attempt=1, hour_utc=HOUR, gpu_ms=MINUTE)
    decider.accept(used)
    assert rejected(decider.when(submit())) == errors.HARD_LIMIT
    decider.at += 31 * 24 * HOUR_MS
    decider.accept(submit())


def test_use_moves_from_the_hold_to_the_month_and_back_by_credits() -> None:
    decider = lived("running")
    before = open_gpu_ms(decider.state[TENANT])
    counted = decider.when(RecordUsage(job_id=JOB_ID, attempt=1, hour_utc=HOUR, gpu_ms=5 * MINUTE))
    assert of(counted, UsageCounted).gpu_ms == 5 * MINUTE
    assert open_gpu_ms(decider.state[TENANT]) == before - 5 * MINUTE
    decider.accept(RecordUsage(job_id=JOB_ID, attempt=1, hour_utc=HOUR, gpu_ms=-2 * MINUTE))
    assert open_gpu_ms(decider.state[TENANT]) == before - 3 * MINUTE
    assert list(decider.state[TENANT].used_gpu_ms.values()) == [3 * MINUTE]
    assert decider.when(RecordUsage(job_id=JOB_ID, attempt=1, hour_utc=HOUR, gpu_ms=0)) == ()


# --- a file that is still being validated ---------------------------------------------------------


FEW = Failure(code=errors.EXAMPLES, reason=rejecting("rows_too_few", rows=7, limit=10))
DELETED = Failure(code="file_deleted", reason=failing("file_deleted"))
CHANGED = Failure(code=errors.BASE_CHANGED, reason=failing("base_changed"))
UNJUDGED = Failure(
    code=errors.PLATFORM,
    reason=failing("scores_unjudged"),
    detail=Sealed(key_id="k", nonce=b"n", ciphertext=b"no such blob"),
)


def noted(accepted: bool = True, file_id: str = "file-1") -> RecordFile:
    return RecordFile(file_id=file_id, accepted=accepted, tokens=(tokens(),) if accepted else ())


def test_the_hold_waits_for_the_validation() -> None:
    decider = new_tenant().accept(limits())
    events = decider.when(submit(count=None))
    assert names(events) == ["JobSubmitted", "PhaseSet"]
    assert of(events, PhaseSet).reason == waiting("file_validation")
    assert decider.when(prepared()) == decider.when(pinned()) == ()
    events = decider.when(noted())
    assert names(events) == ["FileNoted", "HoldTaken", "PinsWanted", "PhaseSet"]
    assert names(decider.when(noted())) == ["FileNoted"]


def test_a_rejected_file_fails_the_job_that_waited() -> None:
    decider = new_tenant().accept(limits(), submit(count=None))
    ended = of(decider.when(noted(accepted=False)), JobEnded)
    assert (ended.outcome, ended.released_gpu_ms) == ("failed", 0)
    assert ended.failure.code == errors.FILE_REJECTED
    assert ended.failure.param == "training_file"


def test_the_job_fails_with_the_code_of_its_file() -> None:
    decider = new_tenant().accept(limits(), submit(count=None))
    few = RecordFile(file_id="file-1", accepted=False, tokens=(), failure=FEW)
    failure = of(decider.when(few), JobEnded).failure
    assert failure == replace(FEW, param="training_file")


def test_a_file_without_counts_for_this_base_fails_it_too() -> None:
    decider = new_tenant().accept(limits(), submit(count=None))
    other = RecordFile(file_id="file-1", accepted=True, tokens=())
    assert of(decider.when(other), JobEnded).failure.code == errors.FILE_REJECTED


def test_late_holds_are_taken_in_order_of_submission_up_to_the_limit() -> None:
    decider = new_tenant().accept(limits(hard=hold()), submit("ftjob-b", None))
    decider.at += 1
    decider.accept(submit("ftjob-a", None))
    events = decider.when(noted())
    assert of(events, HoldTaken).job_id == "ftjob-b"
    ended = of(events, JobEnded)
    assert (ended.job_id, ended.failure.code) == ("ftjob-a", errors.HARD_LIMIT)


def test_a_validation_that_ended_before_the_submission_is_remembered() -> None:
    """Whatever comes first: the tenant's limits, the file or the job."""
    decider = new_tenant().accept(noted(), limits())
    assert "HoldTaken" in names(decider.when(submit(count=None)))
    decider.accept(noted(False, "file-2"))
    events = decider.when(submit("ftjob-2", None, training_file="file-2"))
    assert rejected(events) == errors.FILE_REJECTED
    few = RecordFile(file_id="file-3", accepted=False, tokens=(), failure=FEW)
    decider.accept(few)
    events = decider.when(submit("ftjob-3", None, training_file="file-3"))
    assert rejected(events) == errors.EXAMPLES


# --- to the queue ---------------------------------------------------------------------------------


def test_first_hour_low_a_job_may_be_cancelled_again() -> None:
    """The answer was 200 until the end was recorded, then 409."""
    decider = new_tenant().accept(limits(), submit("ftjob-1"))
    for _ in range(3):
        assert not any(
            isinstance(event, Rejected) for event in decider.when(CancelJob(job_id="ftjob-1"))
        )
    assert rejected(decider.when(PauseJob(job_id="ftjob-1"))) == errors.ILLEGAL_STATE


@pytest.mark.parametrize("first", ["dataset", "base"])
def test_both_pins_lead_to_the_queue(first: str) -> None:
    order = (prepared(), pinned()) if first == "dataset" else (pinned(), prepared())
    decider = lived("validating")
    assert names(decider.when(order[0])) == [
        DatasetBound.__name__ if first == "dataset" else BaseBound.__name__
    ]
    events = decider.when(order[1])
    wanted = placement_of(events)
    assert (wanted.attempt, wanted.role, wanted.lane) == (1, "train", "standard")
    assert isinstance(work_of(events), TrainWork)
    assert of(events, PhaseSet).phase == "queued"
    assert decider.when(order[0]) == decider.when(order[1]) == ()


def test_the_cap_leaves_what_evaluation_needs() -> None:
    job = job_of(lived("validating"))
    assert job is not None
    assert job.hold is not None
    wanted = placement_of(lived("validating").accept(prepared()).when(pinned()))
    evaluation = eval_hold(job.spec, job.hold)
    assert wanted.max_gpu_ms == job.hold.hold_gpu_ms - evaluation
    wanted = placement_of(lived("running").when(closed(billable=5 * MINUTE)))
    assert wanted.max_gpu_ms == job.hold.hold_gpu_ms - 5 * MINUTE


@pytest.mark.parametrize(
    ("fact", "code"),
    [
        (prepared(prepared=None, failure=DELETED), "file_deleted"),
        (prepared(prepared=None), errors.FILE_REJECTED),
        (pinned(base=None, failure=CHANGED), errors.BASE_CHANGED),
        (pinned(base=replace(spec().base, sha256="c" * 64)), errors.BASE_CHANGED),
    ],
)
def test_a_pin_that_fails_fails_the_job_and_settles(fact: Any, code: str) -> None:
    decider = lived("validating")
    ended = of(decider.when(fact), JobEnded)
    assert (ended.outcome, ended.failure.code) == ("failed", code)
    assert ended.released_gpu_ms == hold()
    assert open_gpu_ms(decider.state[TENANT]) == 0


def test_a_job_paused_before_the_queue_waits_for_its_resume() -> None:
    decider = lived("validating").accept(PauseJob(job_id=JOB_ID), prepared())
    events = decider.when(pinned())
    assert names(events) == ["BaseBound", "PhaseSet"]
    assert of(events, PhaseSet).reason == waiting("paused")
    assert placement_of(decider.when(ResumeJob(job_id=JOB_ID))).attempt == 1


# --- attempts -------------------------------------------------------------------------------------


def test_facts_of_the_open_attempt_move_the_phase() -> None:
    decider = lived("queued")
    waits = RecordWait(job_id=JOB_ID, attempt=1, reason=waiting("no_capacity"))
    assert decider.when(waits) == (), "readers compute why it waits"
    provisioning = of(decider.when(granted()), PhaseSet)
    assert (provisioning.phase, provisioning.node_ids) == ("provisioning", ("a",))
    events = decider.when(started())
    assert of(events, AttemptStarted).start.total_steps == 40
    assert of(events, PhaseSet).phase == "running"
    draining = RecordDraining(job_id=JOB_ID, attempt=1)
    assert of(decider.when(draining), PhaseSet).phase == "checkpointing"


def test_a_start_after_the_drain_notice_stays_checkpointing() -> None:
    decider = lived("provisioning").accept(RecordDraining(job_id=JOB_ID, attempt=1))
    assert names(decider.when(started())) == ["AttemptStarted"]


@pytest.mark.parametrize(
    "late",
    [
        granted(2),
        started(2),
        closed(2),
        RecordWait(job_id=JOB_ID, attempt=2, reason=waiting("no_capacity")),
        RecordDraining(job_id=JOB_ID, attempt=0),
        RecordCheckpoint(job_id=JOB_ID, checkpoint=checkpoint(10, attempt=2)),
        replace(started(), job_id="ftjob-9"),
        VERDICT,
        REGISTERED,
    ],
)
def test_facts_about_other_attempts_jobs_and_phases_change_nothing(late: Any) -> None:
    assert lived("running").when(late) == ()


def test_the_newest_checkpoints_are_kept_and_named_in_the_next_attempt() -> None:
    decider = lived("running")
    for step in (10, 20, 30, 40):
        written = checkpoint(step)
        recorded = of(
            decider.when(RecordCheckpoint(job_id=JOB_ID, checkpoint=written)), CheckpointRecorded
        )
        assert recorded.trained_tokens == written.tokens
    wanted = placement_of(decider.when(closed(outcome="lost", lost=MINUTE)))
    assert [c.step for c in wanted.checkpoints] == [40, 30, 20]
    manifest = wanted.checkpoints[0].manifest_sha256
    bad = SkippedCheckpoint(manifest_sha256=manifest, reason=skipping("blob_corrupt"))
    decider.accept(granted(2), started(2, skipped=(bad,)))
    wanted = placement_of(decider.when(closed(2, outcome="lost")))
    assert [c.step for c in wanted.checkpoints] == [30, 20]


def test_a_work_is_described_once_and_again_only_when_it_changes() -> None:
    decider = lived("validating").accept(prepared())
    events = decider.when(pinned())
    assert names(events) == ["BaseBound", "PhaseSet", "WorkDescribed", "PlacementWanted"]
    work_id = work_id_of(work_of(events))
    assert placement_of(events).work_id == work_id
    retry = decider.when(closed(outcome="lost", billable=0))
    assert "WorkDescribed" not in names(retry)
    assert placement_of(retry).work_id == work_id
    smaller = decider.when(closed(2, outcome="failed", cause="oom"))
    assert placement_of(smaller).work_id == work_id_of(work_of(smaller)) != work_id


def test_a_placement_carries_what_a_planner_needs() -> None:
    decider = lived("validating").accept(prepared())
    decider.at += MINUTE
    events = decider.when(pinned())
    job = job_of(decider)
    assert job is not None
    assert job.hold is not None
    placement = placement_of(events)
    assert (placement.tenant, placement.first_submitted_at) == (TENANT, T0)
    assert (placement.p50_ms, placement.p90_ms) == (job.hold.train_gpu_ms, placement.max_gpu_ms)
    assert (placement.device, placement.memory_bytes) == ("cpu", job.hold.memory_bytes)
    assert (placement.weight, placement.preemptions) == (1, 0)
    authors: tuple[EndAuthor, ...] = ("scheduler", "tenant", "node")
    for attempt, author, preemptions in zip((1, 2, 3), authors, (1, 1, 2), strict=True):
        victim = closed(attempt, outcome="preempted", billable=0, ended_by=author)
        assert placement_of(decider.when(victim)).preemptions == preemptions


def test_trained_tokens_are_a_high_water_mark() -> None:
    decider = lived("running").accept(
        RecordCheckpoint(job_id=JOB_ID, checkpoint=checkpoint(30)),
        closed(outcome="lost"),
        granted(2),
        started(2),
    )
    again = RecordCheckpoint(job_id=JOB_ID, checkpoint=checkpoint(10, attempt=2))
    assert of(decider.when(again), CheckpointRecorded).trained_tokens == 30_000


def test_evaluation_follows_training_and_never_leaves_its_phase() -> None:
    decider = lived("running")
    events = decider.when(closed())
    assert of(events, AttemptEnded).job_billable_gpu_ms == MINUTE
    wanted = placement_of(events)
    assert (wanted.role, wanted.attempt, wanted.checkpoints) == ("eval", 2, ())
    assert isinstance(work := work_of(events), EvalWork)
    assert work.adapter == TRAINED.adapter
    assert of(decider.when(granted(2)), PhaseSet).phase == "evaluating"
    assert of(decider.when(started(2)), PhaseSet).phase == "evaluating"
    assert decider.when(RecordDraining(job_id=JOB_ID, attempt=2)) == ()


def test_a_version_names_what_its_newest_training_attempt_was_computed_with() -> None:
    decider = lived("running")
    decider.when(started(environment={"torch": "2.15.0", "python": "3.11.9"}))
    decider.when(closed())
    decider.when(granted(2))
    decider.when(started(2, environment={"python": "3.13.1"}))  # the evaluation
    decider.when(closed(2, role="eval", billable=2 * MINUTE))
    lineage = of(decider.when(VERDICT), RegistrationWanted).terms.lineage
    assert lineage.environment == {"python": "3.11.9", "torch": "2.15.0"}


def test_training_on_is_work_of_its_own_and_in_the_lineage() -> None:
    """The process begins with the weights that were asked for, and the version says so."""
    start = AdapterStart(model_id="ft:first", sha256=FILE.sha256, files=(FILE,))
    decider = new_tenant().accept(limits(), submit(JOB_ID, start=start), prepared())
    assert isinstance(work := work_of(decider.when(pinned())), TrainWork)
    assert work.start == start
    assert work_id_of(work) != work_id_of(replace(work, start=None))
    for message in (granted(), started(), closed(), closed(2, role="eval")):
        decider.when(message)
    lineage = of(decider.when(VERDICT), RegistrationWanted).terms.lineage
    assert (lineage.start_id, lineage.start_sha256) == ("ft:first", FILE.sha256)


def test_scores_verdict_registration_end() -> None:
    decider = lived("evaluating")
    assert of(decider.when(closed(2, role="eval", billable=2 * MINUTE)), VerdictDue).scores.name
    events = decider.when(VERDICT)
    register = of(events, RegistrationWanted)
    assert (register.terms.model_id, register.adapter) == ("ft:smol", TRAINED.adapter)
    assert register.terms.lineage.verdict == "pass"
    assert register.terms.lineage.scores_sha256 == FILE.sha256
    assert decider.when(VERDICT) == ()
    ended = of(decider.when(REGISTERED), JobEnded)
    assert (ended.outcome, ended.model_id, ended.failure) == ("succeeded", "ft:smol", None)
    assert (ended.billable_gpu_ms, ended.trained_tokens) == (3 * MINUTE, TRAINED.tokens)
    assert decider.when(REGISTERED) == ()
    assert list(decider.state[TENANT].ended) == [JOB_ID]


def test_a_blocked_adapter_is_registered_too() -> None:
    blocked = RecordVerdict(job_id=JOB_ID, summary=replace(PASSED, verdict="block"))
    decider = new_tenant().accept(*SCORED_LIFE)
    assert of(decider.when(blocked), RegistrationWanted).terms.lineage.verdict == "block"
    assert of(decider.when(REGISTERED), JobEnded).outcome == "succeeded"


def test_scores_that_cannot_be_judged_and_publishing_that_fails_end_the_job() -> None:
    decider = new_tenant().accept(*SCORED_LIFE)
    broken = RecordVerdict(job_id=JOB_ID, summary=None, failure=UNJUDGED)
    failure = of(decider.when(broken), JobEnded).failure
    assert failure.code == errors.PLATFORM
    assert failure == UNJUDGED
    full = Failure(code=errors.ILLEGAL_STATE, reason=failing("versions_at_most", limit=1))
    failed = RecordRegistered(job_id=JOB_ID, model_id="ft:smol", failure=full)
    failure = of(lived("registering").when(failed), JobEnded).failure
    assert failure == replace(full, code=errors.PLATFORM)


# --- cancel, pause, resume while something is open ------------------------------------------------


@pytest.mark.parametrize("outcome", ["succeeded", "preempted", "lost", "failed", "not_started"])
def test_a_cancelled_job_is_cancelled_whatever_the_exit_said(outcome: Any) -> None:
    decider = lived("running").accept(CancelJob(job_id=JOB_ID))
    assert of(decider.when(closed(outcome=outcome)), JobEnded).outcome == "cancelled"


@pytest.mark.parametrize("outcome", ["preempted", "lost", "failed", "not_started"])
def test_a_paused_job_is_queued_and_resumes_from_its_checkpoint(outcome: Any) -> None:
    decider = lived("running").accept(
        RecordCheckpoint(job_id=JOB_ID, checkpoint=checkpoint(10)), PauseJob(job_id=JOB_ID)
    )
    events = decider.when(closed(outcome=outcome))
    assert names(events) == ["AttemptEnded", "PhaseSet"]
    assert of(events, PhaseSet).phase == "queued"
    wanted = placement_of(decider.when(ResumeJob(job_id=JOB_ID)))
    assert (wanted.attempt, [c.step for c in wanted.checkpoints]) == (2, [10])


def test_success_advances_a_paused_job() -> None:
    decider = lived("running").accept(PauseJob(job_id=JOB_ID))
    events = decider.when(closed())
    assert names(events) == ["AttemptEnded", "PhaseSet"]
    assert of(events, PhaseSet).phase == "evaluating"
    assert placement_of(decider.when(ResumeJob(job_id=JOB_ID))).role == "eval"


def test_a_paused_evaluation_is_repeated_on_resume_or_judged_when_it_was_done() -> None:
    decider = lived("evaluating").accept(PauseJob(job_id=JOB_ID))
    assert of(decider.when(closed(2, "preempted", role="eval")), PhaseSet).phase == "evaluating"
    assert placement_of(decider.when(ResumeJob(job_id=JOB_ID))).role == "eval"
    decider = lived("evaluating").accept(PauseJob(job_id=JOB_ID))
    assert "VerdictDue" in names(decider.when(closed(2, role="eval")))
    assert "PlacementWanted" not in names(decider.when(ResumeJob(job_id=JOB_ID)))
    assert "RegistrationWanted" in names(decider.when(VERDICT))


def test_resume_while_it_still_drains_waits_for_the_end() -> None:
    decider = lived("running").accept(PauseJob(job_id=JOB_ID))
    assert names(decider.when(ResumeJob(job_id=JOB_ID))) == ["WantedSet"]
    assert placement_of(decider.when(closed(outcome="preempted"))).attempt == 2


def test_a_submission_is_kept_as_it_came() -> None:
    job = of(new_tenant().accept(limits()).when(submit()), JobSubmitted)
    assert (job.lane, job.price_version, job.spec) == ("standard", "2026-11", spec())
    fact = of(new_tenant().when(noted()), FileNoted)
    assert fact.tokens == (tokens(),)


def test_the_fold_of_the_journal_is_the_state() -> None:
    decider: Decider = lived("done")
    assert decider.refolded() == decider.state


def test_the_end_of_a_run_is_recorded_after_the_end_of_its_job_and_changes_nothing() -> None:
    report = RecordMirror(job_id=JOB_ID, report=MirrorReport(kind="mlflow", status="written"))
    for decider in (lived("running"), lived("done")):
        before = decider.state
        assert decider.when(report) == (MirrorReported(job_id=JOB_ID, report=report.report),)
        assert decider.state == before
