"""The events that carry a job on, each step by itself."""

from typing import Any, cast, get_args

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.integrations import Integration
from schemas.job import (
    GateRunEnded,
    JobEnded,
    LookTaken,
    Phase,
    PhaseSet,
    PlacementUnwanted,
    PlacementWanted,
    RecordLook,
    RecordRegistered,
    RecordVerdict,
    RegistrationWanted,
    WorkDescribed,
)
from schemas.pool import CloseMode, Role
from schemas.reasons import Failure, failing, waiting
from schemas.sealed import Sealed
from schemas.session import SavedIn
from schemas.submission import EvaluationTerms
from schemas.training import AdapterStart, BlobFile, EvalWork, TrainWork
from services.scheduler.domain.job import steps
from services.scheduler.domain.job.evolve import JobEvent, evolve_job
from services.scheduler.domain.job.state import OpenJob
from simulator.control_plane.samples import PASSED, TRAINED, checkpoint
from tests.unit.services.scheduler.fold import of
from tests.unit.services.scheduler.lives import JOB_ID, SCORED_LIFE, job_of, lived, new_tenant

PROMPTS = Sealed(key_id="t.1", nonce=b"n", ciphertext=b"c")
SCORES = BlobFile(name="scores.json", blob="t/acme/scores", sha256="c" * 64, bytes=3)
FAILURE = Failure(code=errors.PLATFORM, reason=failing("scores_unjudged"))


def job_in(phase: Phase, **changes: Any) -> OpenJob:
    job = job_of(lived(phase))
    assert job is not None
    return replace(job, **changes)


def kinds(events: tuple[Any, ...]) -> list[type]:
    return [type(event) for event in events]


def test_nothing_is_placed_before_both_dataset_and_base_are_there() -> None:
    job = job_in("queued", open=None, work_id=None)
    assert PlacementWanted in kinds(steps.after_binding(job))
    assert steps.after_binding(replace(job, base_bound=False)) == ()
    assert steps.after_binding(replace(job, prepared=None)) == ()


def test_a_paused_job_waits_instead_of_being_placed() -> None:
    job = job_in("queued", open=None, wanted="paused")
    (paused,) = steps.after_binding(job)
    assert isinstance(paused, PhaseSet)
    assert (paused.phase, paused.reason) == ("queued", waiting("paused"))


def test_work_is_described_once_and_again_only_when_it_has_changed() -> None:
    first = steps.place_attempt(job_in("queued", work_id=None), "train")
    assert kinds(first) == [PhaseSet, WorkDescribed, PlacementWanted]
    described, wanted = of(first, WorkDescribed), of(first, PlacementWanted)
    assert isinstance(described.description.work, TrainWork)
    assert described.description.work_id == wanted.placement.work_id
    job = job_in("queued", work_id=wanted.placement.work_id)
    assert kinds(steps.place_attempt(job, "train")) == [PhaseSet, PlacementWanted]
    other = replace(job, hyper=replace(job.hyper, seed=job.hyper.seed + 1))
    assert WorkDescribed in kinds(steps.place_attempt(other, "train"))


def test_an_evaluation_has_the_adapter_and_no_checkpoints() -> None:
    job = job_in("evaluating", work_id=None, checkpoints=(checkpoint(20),))
    job = replace(job, spec=replace(job.spec, prompts=PROMPTS))
    events = steps.place_attempt(job, "eval")
    work, placement = of(events, WorkDescribed).description.work, of(events, PlacementWanted)
    assert isinstance(work, EvalWork)
    assert work.adapter == TRAINED.adapter
    assert work.prompts == job.spec.prompts == PROMPTS
    assert placement.placement.checkpoints == ()
    assert of(events, PhaseSet).phase == "evaluating"


def test_a_training_has_the_slots_of_its_job_and_an_evaluation_one() -> None:
    queued, trained = job_in("queued"), job_in("evaluating", work_id=None)
    placements: tuple[tuple[OpenJob, Role, int], ...] = ((queued, "train", 4), (trained, "eval", 1))
    for one_slot, role, slots in placements:
        job = replace(one_slot, spec=replace(one_slot.spec, slots=4))
        placement = of(steps.place_attempt(job, role), PlacementWanted).placement
        assert placement.slots == slots
        assert placement.max_gpu_ms % slots == 0
        assert placement.p90_ms == placement.max_gpu_ms // slots


def test_attempts_are_numbered_and_capped_by_what_is_left_of_the_hold() -> None:
    job = job_in("queued", attempt=6)
    placement = of(steps.place_attempt(job, "train"), PlacementWanted).placement
    assert placement.attempt == 7
    assert placement.p50_ms <= placement.p90_ms == placement.max_gpu_ms // placement.slots


def test_less_than_a_millisecond_for_each_slot_ends_the_job() -> None:
    job = job_in("queued")
    assert job.hold is not None
    empty_hold = replace(job.hold, hold_gpu_ms=0, train_gpu_ms=0, eval_gpu_ms=0)
    (ended,) = steps.place_attempt(replace(job, hold=empty_hold), "train")
    assert isinstance(ended, JobEnded)
    assert ended.outcome == "failed"


@pytest.mark.parametrize("asked", [None, *get_args(CloseMode)])
@pytest.mark.parametrize(("wanted", "mode"), [("paused", "drain"), ("cancelled", "kill")])
def test_the_end_of_an_attempt_is_asked_for_only_in_a_harder_way(
    asked: Any, wanted: Any, mode: CloseMode
) -> None:
    job = job_in("running", wanted=wanted)
    assert job.open is not None
    job = replace(job, open=replace(job.open, asked=asked))
    events = steps.after_change(job)
    if steps.HARDNESS[asked] >= steps.HARDNESS[mode]:
        assert events == ()
    else:
        request = of(events, PlacementUnwanted).request
        assert (request.mode, request.attempt, request.ended_by) == (mode, 1, "tenant")


def test_a_cancelled_job_without_an_attempt_ends_at_once() -> None:
    (ended,) = steps.after_change(job_in("validating", wanted="cancelled"))
    assert isinstance(ended, JobEnded)
    assert (ended.outcome, ended.failure, ended.pool) == ("cancelled", None, None)


@pytest.mark.parametrize(
    ("phase", "placed"), [("validating", False), ("queued", True), ("evaluating", True)]
)
def test_a_resumed_job_is_placed_where_its_inputs_are_ready(phase: Phase, placed: bool) -> None:
    events = steps.after_change(job_in(phase, open=None, wanted="run"))
    assert (PlacementWanted in kinds(events)) is placed


def test_a_resumed_job_that_still_drains_waits_for_the_end_of_its_attempt() -> None:
    assert steps.after_change(job_in("checkpointing", wanted="run")) == ()


def test_a_verdict_counts_only_where_scores_are() -> None:
    command = RecordVerdict(job_id=JOB_ID, summary=PASSED)
    assert steps.after_verdict(job_in("running"), command) == ()
    scored = job_of(new_tenant().accept(*SCORED_LIFE))
    assert scored is not None
    (ended,) = steps.after_verdict(scored, replace(command, summary=None))
    assert isinstance(ended, JobEnded)
    assert ended.failure is not None
    assert (ended.failure.code, ended.failure.reason.code) == (errors.PLATFORM, "scores_unjudged")


def test_a_failed_registration_is_the_platforms_and_costs_nothing() -> None:
    refused = replace(FAILURE, code=errors.MALFORMED)
    command = RecordRegistered(job_id=JOB_ID, model_id="", failure=refused)
    assert steps.after_registration(job_in("running"), command) == ()
    job = job_in("registering")
    (ended,) = steps.after_registration(job, command)
    assert isinstance(ended, JobEnded)
    assert ended.failure is not None
    assert ended.failure.code == errors.PLATFORM
    assert ended.refund is not None
    assert ended.lost_gpu_ms == ended.billable_gpu_ms == job.billable_gpu_ms > 0


def test_a_failure_names_the_field_of_the_request() -> None:
    ended = steps.fail_job(job_in("validating"), FAILURE, param="training_file")
    assert ended.failure == replace(FAILURE, param="training_file")


def evaluating(*, imported: bool) -> OpenJob:
    """An open job without a training, once its evaluation has left scores."""
    job = job_in("evaluating")
    start = AdapterStart(model_id="ft:m", sha256="a" * 64, files=TRAINED.adapter)
    spec = replace(job.spec, start=start, evaluation=EvaluationTerms(imported=imported))
    return replace(job, spec=spec, result=TRAINED, scores=SCORES)


def test_gate_a_job_that_only_evaluates_begins_with_its_evaluation() -> None:
    job = replace(evaluating(imported=True), open=None, work_id=None, scores=None)
    placed = of(steps.after_binding(job), PlacementWanted)
    assert placed.placement.role == "eval"
    work = of(steps.after_binding(job), WorkDescribed).description.work
    assert isinstance(work, EvalWork)
    assert work.adapter == TRAINED.adapter
    (paused,) = steps.after_binding(replace(job, wanted="paused"))
    assert isinstance(paused, PhaseSet)
    assert paused.phase == "evaluating"


def test_gate_an_import_becomes_a_version_and_a_further_run_only_a_verdict() -> None:
    verdict = RecordVerdict(job_id=JOB_ID, summary=PASSED)
    wanted = of(steps.after_verdict(evaluating(imported=True), verdict), RegistrationWanted)
    lineage = wanted.terms.lineage
    assert (lineage.imported, lineage.start_id, lineage.verdict) == (True, None, PASSED.verdict)
    job = evaluating(imported=True)
    saved_in = SavedIn(session_id="session-1", command="7")
    of_session = EvaluationTerms(imported=True, saved_in=saved_in)
    job = replace(job, spec=replace(job.spec, evaluation=of_session))
    lineage = of(steps.after_verdict(job, verdict), RegistrationWanted).terms.lineage
    assert (lineage.imported, lineage.saved_in) == (False, saved_in)
    events = steps.after_verdict(evaluating(imported=False), verdict)
    assert RegistrationWanted not in kinds(events)
    run = of(events, GateRunEnded).run
    job = evaluating(imported=False)
    assert (run.model_id, run.job_id) == (job.spec.model_id, JOB_ID)
    assert (run.base_sha256, run.verdict) == (job.spec.base.sha256, PASSED.verdict)
    assert (run.scores_sha256, run.unusable) == (SCORES.sha256, False)


def test_a_look_that_decides_nothing_asks_the_next_part_of_the_items() -> None:
    job = evaluating(imported=False)
    job = replace(job, spec=replace(job.spec, looks_ppm=(250_000, 500_000, 1_000_000)), open=None)
    command = RecordLook(job_id=JOB_ID, look=1, comparisons=())
    events = steps.after_look(job, command)
    assert kinds(events) == [LookTaken, PhaseSet, WorkDescribed, PlacementWanted]
    work = of(events, WorkDescribed).description.work
    assert isinstance(work, EvalWork)
    assert (work.share_ppm, work.scored) == (500_000, SCORES)
    for event in events:
        job = evolve_job(job, cast(JobEvent, event))
    assert (job.look, job.scored, job.scores) == (2, SCORES, None)
    assert steps.after_look(job, command) == (), "told twice"


@pytest.mark.parametrize(("look", "looks"), [(1, ()), (2, (500_000, 1_000_000)), (3, (1_000_000,))])
def test_no_look_follows_the_last(look: int, looks: tuple[int, ...]) -> None:
    job = evaluating(imported=False)
    job = replace(job, spec=replace(job.spec, looks_ppm=looks), look=max(1, len(looks)))
    command = RecordLook(job_id=JOB_ID, look=look, comparisons=())
    assert steps.after_look(job, command) == ()


def test_a_job_that_was_paused_meanwhile_rests_between_two_looks() -> None:
    job = evaluating(imported=False)
    job = replace(job, spec=replace(job.spec, looks_ppm=(500_000, 1_000_000)), open=None)
    looked, paused = steps.after_look(
        replace(job, wanted="paused"), RecordLook(job_id=JOB_ID, look=1, comparisons=())
    )
    assert isinstance(looked, LookTaken)
    assert isinstance(paused, PhaseSet)
    assert (paused.phase, paused.reason) == ("evaluating", waiting("paused"))
    rested = evolve_job(evolve_job(job, looked), paused)
    assert PlacementWanted in kinds(steps.after_change(replace(rested, wanted="run")))


def test_the_verdict_of_a_look_before_does_not_count() -> None:
    job = replace(evaluating(imported=False), look=2)
    verdict = RecordVerdict(job_id=JOB_ID, summary=PASSED)
    assert steps.after_verdict(job, verdict) == ()
    at_second = replace(verdict, summary=replace(PASSED, look=2))
    assert GateRunEnded in kinds(steps.after_verdict(job, at_second))


def test_the_end_of_a_job_says_where_its_figures_go() -> None:
    asked = Integration(kind="mlflow", settings=PROMPTS)
    job = job_in("running")
    job = replace(job, spec=replace(job.spec, integrations=(asked,)))
    assert steps.end_job(job, "cancelled").integrations == ("mlflow",)
