"""The life of a job after its hold: placement, evaluation, verdict, registration, end."""

from typing import Final, assert_never

from msgspec.structs import replace

from schemas import errors
from schemas.dataset import Prepared
from schemas.envelope import Sha256
from schemas.gate import GateRun
from schemas.job import (
    AttemptEnded,
    Event,
    GateRunEnded,
    JobEnded,
    JobOutcome,
    LookTaken,
    PhaseSet,
    PlacementUnwanted,
    PlacementWanted,
    RecordLook,
    RecordRegistered,
    RecordVerdict,
    RegistrationWanted,
    VerdictDue,
    VerdictRecorded,
    WorkDescribed,
)
from schemas.model import Lineage, LineageFile, ScoreSummary, VersionTerms
from schemas.pool import CloseMode, EndRequest, Placement, Role
from schemas.reasons import EndCode, Failure, ending, failing, waiting
from schemas.records import build_from
from schemas.sealed import Sealed
from schemas.submission import Estimate
from schemas.training import (
    BlobFile,
    EvalResult,
    EvalWork,
    HyperParameters,
    TrainingFacts,
    TrainResult,
    TrainWork,
    Work,
    WorkDescription,
    work_id_of,
)
from schemas.units import PPM, GpuMs
from services.scheduler.domain.job.policy import Again, GiveUp, budget_exhausted, next_step
from services.scheduler.domain.job.quota import (
    attempt_gpu_ms_max,
    billed_gpu_ms_max,
    rest_gpu_ms,
    slots_of,
)
from services.scheduler.domain.job.state import OpenJob
from tunery.gate.decision import ITEMS_MIN
from tunery.plan.estimate import EVAL_SLOTS, corrected
from tunery.plan.memory import memory_of_variants
from tunery.plan.micro_batches import rows_at_once, with_at_most
from tunery.plan.refunds import job_refund
from tunery.plan.time import start_ms_max

SHORT_PROMPTS: Final = 2  # of the bundled ones, after a training that was short
HARDNESS: Final[dict[CloseMode | None, int]] = {None: 0, "drain": 1, "kill": 2}


def after_binding(job: OpenJob) -> tuple[Event, ...]:
    """Once dataset and base model are there, the job enters its pool's queue."""
    if job.prepared is None or not job.base_bound:
        return ()
    role: Role = "train" if job.result is None else "eval"
    return pause_at(job, role) if job.wanted == "paused" else place_attempt(job, role)


def pause_at(job: OpenJob, role: Role) -> tuple[Event, ...]:
    """Paused without an open placement: `queued`, or `evaluating` where training is done."""
    phase = PhaseSet(
        job_id=job.job_id,
        phase="queued" if role == "train" else "evaluating",
        reason=waiting("paused"),
    )
    return (phase,)


def place_attempt(job: OpenJob, role: Role) -> tuple[Event, ...]:
    """Ask the pool for the next attempt; the attempt number is minted here.

    Work that was not described yet, or has changed, is described first.
    """
    work = _work(job, role)
    gpu_ms_max = attempt_gpu_ms_max(job, role)
    if work is None or job.hold is None or gpu_ms_max < slots_of(job, role):  # under a millisecond
        return _give_up(job, budget_exhausted(), None)
    work_id = work_id_of(work)
    pool = job.spec.pool
    queued = PhaseSet(
        job_id=job.job_id,
        phase="queued" if role == "train" else "evaluating",
        reason=waiting("placement"),
    )
    placement = _placement(job, job.hold, role, work_id, gpu_ms_max)
    wanted = PlacementWanted(pool=pool, placement=placement)
    if work_id == job.work_id:
        return (queued, wanted)
    description = WorkDescription(job_id=job.job_id, work_id=work_id, work=work)
    return (queued, WorkDescribed(pool=pool, description=description), wanted)


def _placement(
    job: OpenJob, hold: Estimate, role: Role, work_id: Sha256, gpu_ms_max: GpuMs
) -> Placement:
    slots = slots_of(job, role)
    cap_ms = gpu_ms_max // slots
    expected_gpu_ms = hold.train_gpu_ms if role == "train" else hold.eval_gpu_ms
    return build_from(
        Placement,
        job,
        job.spec,
        attempt=job.attempt + 1,
        role=role,
        slots=slots,
        max_gpu_ms=gpu_ms_max,
        work_id=work_id,
        checkpoints=job.checkpoints if role == "train" else (),
        first_submitted_at=job.created_at,
        p50_ms=min(expected_gpu_ms // slots, cap_ms),
        p90_ms=cap_ms,  # no distribution is known yet: what it may use at most
        memory_bytes=_memory_bytes(job, hold),
        start_ms_max=start_ms_max(job.spec.base),
        max_tokens=hold.tokens if job.spec.price.token_micro_per_million and role == "train" else 0,
        billed_gpu_ms_max=billed_gpu_ms_max(job, role),
    )


def _memory_bytes(job: OpenJob, hold: Estimate) -> int:
    """Return the estimated memory of a job; less once its micro-batches are smaller."""
    spec = job.spec
    if job.hyper == spec.hyper:
        return hold.memory_bytes
    hypers = _variants(job) or (job.hyper,)
    smaller = memory_of_variants(spec.base, hypers, spec.device, ranks=spec.slots)
    return min(hold.memory_bytes, smaller)


def _variants(job: OpenJob) -> tuple[HyperParameters, ...]:
    """Return the variants of a training, with micro-batches no larger than those of the job."""
    most = rows_at_once(job.hyper)
    return tuple(with_at_most(variant.hyper, most) for variant in job.spec.variants)


def after_change(job: OpenJob) -> tuple[Event, ...]:
    """Return the events that follow at once from a change of `wanted`.

    With an open placement, its end decides.
    """
    match job.wanted:
        case "cancelled":
            if job.open:
                return close_placement(job, "kill", "cancelled")
            return (end_job(job, "cancelled"),)
        case "paused":
            if job.open:
                return close_placement(job, "drain", "paused")
            paused = PhaseSet(job_id=job.job_id, phase=job.phase, reason=waiting("paused"))
            return (paused,)
        case "run":
            return _resume(job)
        case _:
            assert_never(job.wanted)


def _resume(job: OpenJob) -> tuple[Event, ...]:
    if job.open:  # it is still draining; its end asks for the next attempt
        return ()
    if job.scores is not None:
        return _judging(job)
    match job.phase:
        case "queued":
            return place_attempt(job, "train")
        case "evaluating":
            return place_attempt(job, "eval")
        case _:
            reason = waiting("inputs_not_ready")
            return (PhaseSet(job_id=job.job_id, phase=job.phase, reason=reason),)


def close_placement(job: OpenJob, mode: CloseMode, code: EndCode) -> tuple[Event, ...]:
    """Ask the pool to end the open attempt. Only hardens: nothing is asked for twice."""
    if job.open is None or HARDNESS[job.open.asked] >= HARDNESS[mode]:
        return ()
    request = EndRequest(
        attempt=job.attempt,
        mode=mode,
        ended_by="tenant",
        reason=ending(code),
    )
    return (PlacementUnwanted(job_id=job.job_id, pool=job.spec.pool, request=request),)


def after_attempt(job: OpenJob, attempt: AttemptEnded) -> tuple[Event, ...]:
    """The open attempt has ended: cancelled → done, success → on, paused → rest, run → by cause."""
    if job.wanted == "cancelled":
        return (end_job(job, "cancelled"),)
    if attempt.end.outcome == "succeeded":
        return _after_success(job, attempt)
    if job.wanted == "paused":
        return pause_at(job, attempt.role)
    step = next_step(job, attempt)
    match step:
        case Again():
            return place_attempt(replace(job, hyper=step.hyper), attempt.role)
        case GiveUp():
            return _give_up(job, step, attempt.end.detail)
        case _:
            assert_never(step)


def _after_success(job: OpenJob, attempt: AttemptEnded) -> tuple[Event, ...]:
    match attempt.end.result:
        case EvalResult():
            due = build_from(
                VerdictDue,
                job,
                job.spec,
                scores=attempt.end.result.scores,
                base_id=job.spec.base.base_id,
                training=_facts(job),
                model_id=job.spec.model_id if job.spec.evaluation is not None else None,
            )
            return (due, *_judging(job))
        case TrainResult() if job.spec.session is not None:
            return (end_job(job, "succeeded"),)
        case TrainResult() | None:
            return pause_at(job, "eval") if job.wanted == "paused" else place_attempt(job, "eval")
        case _:
            assert_never(attempt.end.result)


def _facts(job: OpenJob) -> TrainingFacts | None:
    """Return the facts of the training that the gate bases its suggestions on."""
    if job.result is None or job.prepared is None or job.spec.evaluation is not None:
        return None
    return TrainingFacts(
        learning_rate_ppb=job.hyper.learning_rate_ppb,
        epochs=job.hyper.n_epochs,
        steps=job.result.steps,
        rows=job.prepared.train_rows,
        final_loss_ppm=job.result.final_loss_ppm,
    )


def _judging(job: OpenJob) -> tuple[Event, ...]:
    return (PhaseSet(job_id=job.job_id, phase="evaluating", reason=waiting("judging")),)


def after_look(job: OpenJob, command: RecordLook) -> tuple[Event, ...]:
    """Ask the next part of the items, as those so far were inconclusive."""
    if job.scores is None or command.look != job.look or job.look >= len(job.spec.looks_ppm):
        return ()
    looked = LookTaken(job_id=job.job_id, look=command.look, comparisons=command.comparisons)
    job = replace(job, scores=None, scored=job.scores, look=job.look + 1)
    following = pause_at if job.wanted == "paused" else place_attempt
    return (looked, *following(job, "eval"))


def after_verdict(job: OpenJob, command: RecordVerdict) -> tuple[Event, ...]:
    """Register the result. A blocked adapter is registered too, in quarantine."""
    if job.scores is None or job.result is None or job.prepared is None:
        return ()
    if command.summary is not None and command.summary.look != job.look:
        return ()
    if command.summary is None:
        unjudged = Failure(code=errors.PLATFORM, reason=failing("scores_unjudged"))
        return (fail_job(job, command.failure or unjudged),)
    recorded = VerdictRecorded(job_id=job.job_id, summary=command.summary)
    publishing = PhaseSet(job_id=job.job_id, phase="registering", reason=waiting("publishing"))
    if job.spec.evaluation is not None and not job.spec.evaluation.imported:
        return (recorded, publishing, _gate_run(job, command.summary, job.scores))
    lineage = _lineage(job, job.result, job.prepared, command.summary, job.scores)
    terms = VersionTerms(
        model_id=job.spec.model_id,
        series=job.spec.series,
        lineage=lineage,
        author=job.key_id,
    )
    return (recorded, publishing, RegistrationWanted(terms=terms, adapter=job.result.adapter))


def _gate_run(job: OpenJob, summary: ScoreSummary, scores: BlobFile) -> GateRunEnded:
    run = GateRun(
        model_id=job.spec.model_id,
        job_id=job.job_id,
        base_sha256=job.spec.base.sha256,
        verdict=summary.verdict,
        scores_sha256=scores.sha256,
        unusable=_is_unusable(summary),
    )
    return GateRunEnded(run=run)


def _is_unusable(summary: ScoreSummary) -> bool:
    return any(reason.code == "scores_not_finite" for reason in summary.reasons)


def after_registration(job: OpenJob, command: RecordRegistered) -> tuple[Event, ...]:
    if job.phase != "registering":
        return ()
    if command.failure is not None:
        # whatever it was, the tenant's request was right: the platform could not carry it out
        return (fail_job(job, replace(command.failure, code=errors.PLATFORM)),)
    return (end_job(job, "succeeded", model_id=command.model_id),)


# --- the end --------------------------------------------------------------------------------------


def fail_job(job: OpenJob, failure: Failure, param: str | None = None) -> JobEnded:
    """Fail the job. param: the field of its request that is at fault."""
    return end_job(job, "failed", failure=replace(failure, param=param))


def end_job(
    job: OpenJob,
    outcome: JobOutcome,
    model_id: str | None = None,
    failure: Failure | None = None,
) -> JobEnded:
    """Settle the job, and release the unused rest of its hold."""
    refund = None if failure is None else job_refund(failure.code)
    charged = kept = job.billable_gpu_ms - job.lost_gpu_ms
    if refund is not None and refund.scope == "job":
        kept = 0
    elif refund is not None:
        kept = min(charged, _estimated_gpu_ms(job))
        refund = refund if kept < charged else None
    has_time = 0 < kept < charged and bool(job.spec.price.rates)
    return build_from(
        JobEnded,
        job,
        outcome=outcome,
        model_id=model_id,
        failure=failure,
        lost_gpu_ms=job.billable_gpu_ms - kept,
        released_gpu_ms=rest_gpu_ms(job),
        pool=None if job.work_id is None else job.spec.pool,
        refund=None if refund is None else refund.cause,
        # which rates the newest of its hours had is known to `pool`: here they have the mean one
        micro_gpu_ms=job.counted_micro_gpu_ms * kept // charged if has_time else None,
        start_id=None if job.spec.start is None else job.spec.start.model_id,
        integrations=tuple(integration.kind for integration in job.spec.integrations),
    )


def _estimated_gpu_ms(job: OpenJob) -> GpuMs:
    """Return the expected use that the tenant was shown."""
    if job.hold is None:
        return 0
    needs = corrected(job.spec, job.hold)
    return needs.train_gpu_ms + needs.eval_gpu_ms


def _give_up(job: OpenJob, step: GiveUp, detail: Sealed | None) -> tuple[Event, ...]:
    """End a job that is given up. A session at its cap waits until its tenant raises that."""
    if job.spec.session is not None and step.code == errors.BUDGET_EXHAUSTED:
        return (PhaseSet(job_id=job.job_id, phase="queued", reason=waiting("session_cap")),)
    return (fail_job(job, Failure(code=step.code, reason=step.reason, detail=detail)),)


def _work(job: OpenJob, role: Role) -> Work | None:
    base, prepared = job.spec.base, job.prepared
    if prepared is None:
        return None
    if role == "train":
        variants = _variants(job)
        samples = any(hyper.sample_every_steps for hyper in (job.hyper, *variants))
        return TrainWork(
            base_id=base.base_id,
            base_sha256=base.sha256,
            base_path=base.path,
            prepared=prepared,
            hyper=job.hyper,
            start=job.spec.start,
            prompts=job.spec.prompts if samples else None,
            grader=job.spec.grader,
            variants=variants,
            takes_commands=job.spec.session is not None,
            chat=job.spec.chat,
        )
    if job.result is None:
        return None
    is_short = _was_short(job)
    return build_from(
        EvalWork,
        job.hyper,
        job.spec,
        base_id=base.base_id,
        base_sha256=base.sha256,
        base_path=base.path,
        prepared=prepared,
        adapter=job.result.adapter,
        share_ppm=job.spec.looks_ppm[job.look - 1] if job.spec.looks_ppm else PPM,
        scored=job.scored,
        prompts_max=SHORT_PROMPTS if is_short else None,
        questions_max=ITEMS_MIN if is_short else None,
    )


def _was_short(job: OpenJob) -> bool:
    """Whether the training took less time than its evaluation is expected to."""
    if job.training_gpu_ms is None or job.hold is None:
        return False
    return job.training_gpu_ms // job.spec.slots < job.hold.eval_gpu_ms // EVAL_SLOTS


def _lineage(
    job: OpenJob, result: TrainResult, prepared: Prepared, summary: ScoreSummary, scores: BlobFile
) -> Lineage:
    evaluation = job.spec.evaluation
    start = None if evaluation is not None else job.spec.start
    saved_in = None if evaluation is None else evaluation.saved_in
    return Lineage(
        job_id=job.job_id,
        base_id=job.spec.base.base_id,
        base_sha256=job.spec.base.sha256,
        dataset_version=prepared.version,
        training_sha256=prepared.train_sha256,
        config_sha256=result.config_sha256,
        steps=result.steps,
        verdict=summary.verdict,
        scores_sha256=scores.sha256,
        environment=dict(sorted(job.environment.items())),
        configuration=job.spec.configuration,
        start_id=None if start is None else start.model_id,
        start_sha256=None if start is None else start.sha256,
        unusable=_is_unusable(summary),
        mixture=tuple(
            LineageFile(file_id=file.file_id, weight_ppm=file.weight_ppm, sha256=file.sha256)
            for file in job.spec.mixture
        ),
        method=job.hyper.method,
        imported=evaluation is not None and saved_in is None,
        saved_in=saved_in,
        reasoning=job.spec.reasoning,
        chat_sha256=job.spec.chat_sha256,
    )
