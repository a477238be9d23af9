"""The life of a job after its hold: placement, evaluation, verdict, registration, end."""

from typing import Final, assert_never

from msgspec.structs import replace

from schemas import errors
from schemas.dataset import Prepared
from schemas.job import (
    AttemptEnded,
    Event,
    Failure,
    JobEnded,
    JobOutcome,
    PhaseSet,
    PlacementUnwanted,
    PlacementWanted,
    RecordRegistered,
    RecordVerdict,
    RegistrationWanted,
    ScoreSummary,
    VerdictDue,
    VerdictRecorded,
)
from schemas.model import Lineage
from schemas.pool import CloseMode, Role
from schemas.sealed import Sealed
from schemas.training import BlobFile, EvalResult, EvalWork, TrainResult, TrainWork, Work
from services.scheduler.domain.job.policy import (
    VERDICT_ADVICE,
    Again,
    GiveUp,
    after,
    budget_exhausted,
)
from services.scheduler.domain.job.quota import attempt_gpu_ms_max, rest_gpu_ms
from services.scheduler.domain.job.state import Job

PAUSED: Final = "paused; resume it to go on"
HARDNESS: Final[dict[CloseMode | None, int]] = {None: 0, "drain": 1, "kill": 2}


def bound(job: Job) -> tuple[Event, ...]:
    """Once data set and base model are there, the job enters its pool's queue."""
    if job.prepared is None or not job.base_bound:
        return ()
    return rest(job, "train") if job.wanted == "paused" else place(job, "train")


def rest(job: Job, role: Role) -> tuple[Event, ...]:
    """Paused without an open placement: `queued`, or `evaluating` where training is done."""
    phase = PhaseSet(
        job_id=job.job_id,
        phase="queued" if role == "train" else "evaluating",
        reason=PAUSED,
    )
    return (phase,)


def place(job: Job, role: Role) -> tuple[Event, ...]:
    """Ask the pool for the next attempt; the attempt number is minted here."""
    work = _work(job, role)
    gpu_ms_max = attempt_gpu_ms_max(job, role)
    if work is None or gpu_ms_max < job.spec.slots:  # less than a millisecond
        return (_given_up(job, budget_exhausted(), None),)
    wanted = PlacementWanted(
        job_id=job.job_id,
        pool=job.spec.pool,
        attempt=job.attempt + 1,
        role=role,
        lane=job.lane,
        slots=job.spec.slots,
        max_gpu_ms=gpu_ms_max,
        price_version=job.price_version,
        work=work,
        checkpoints=job.checkpoints if role == "train" else (),
        exclude_nodes=job.exclude_nodes,
    )
    queued = PhaseSet(
        job_id=job.job_id,
        phase="queued" if role == "train" else "evaluating",
        reason="waiting for a place in the pool",
    )
    return (queued, wanted)


def wanted(job: Job) -> tuple[Event, ...]:
    """What follows at once from a change of `wanted`; with an open placement, its end decides."""
    match job.wanted:
        case "cancelled":
            return _unwanted(job, "kill") if job.open else (ended(job, "cancelled"),)
        case "paused":
            if job.open:
                return _unwanted(job, "drain")
            reason = PhaseSet(job_id=job.job_id, phase=job.phase, reason=PAUSED)
            return (reason,)
        case "run":
            return _resumed(job)
        case _:
            assert_never(job.wanted)


def _resumed(job: Job) -> tuple[Event, ...]:
    if job.open:  # it is still draining; its end asks for the next attempt
        return ()
    if job.scores is not None:
        return _judging(job)
    match job.phase:
        case "queued":
            return place(job, "train")
        case "evaluating":
            return place(job, "eval")
        case _:
            why = "the file, the data set or the base model is not ready yet"
            return (PhaseSet(job_id=job.job_id, phase=job.phase, reason=why),)


def _unwanted(job: Job, mode: CloseMode) -> tuple[Event, ...]:
    """Only hardens: what was asked for already is not asked again."""
    if job.open is None or HARDNESS[job.open.asked] >= HARDNESS[mode]:
        return ()
    unwanted = PlacementUnwanted(
        job_id=job.job_id, pool=job.spec.pool, attempt=job.attempt, mode=mode
    )
    return (unwanted,)


def closed(job: Job, attempt: AttemptEnded) -> tuple[Event, ...]:
    """PlacementClosed has come: cancelled → done, success → on, paused → rest, run → by cause."""
    if job.wanted == "cancelled":
        return (ended(job, "cancelled"),)
    if attempt.outcome == "succeeded":
        return _succeeded(job, attempt)
    if job.wanted == "paused":
        return rest(job, attempt.role)
    step = after(job, attempt)
    match step:
        case Again():
            kept = job.checkpoints if step.from_checkpoint else ()
            return place(replace(job, hyper=step.hyper, checkpoints=kept), attempt.role)
        case GiveUp():
            return (_given_up(job, step, attempt.message),)
        case _:
            assert_never(step)


def _succeeded(job: Job, attempt: AttemptEnded) -> tuple[Event, ...]:
    match attempt.result:
        case EvalResult():
            scores, drop_max_ppm = attempt.result.scores, job.spec.drop_max_ppm
            due = VerdictDue(job_id=job.job_id, scores=scores, drop_max_ppm=drop_max_ppm)
            return (due, *_judging(job))
        case TrainResult() | None:
            return rest(job, "eval") if job.wanted == "paused" else place(job, "eval")
        case _:
            assert_never(attempt.result)


def _judging(job: Job) -> tuple[Event, ...]:
    why = "the scores are being judged"
    return (PhaseSet(job_id=job.job_id, phase="evaluating", reason=why),)


def verdict(job: Job, command: RecordVerdict) -> tuple[Event, ...]:
    """A blocked adapter is registered as well, in quarantine: the job did what it was asked to."""
    if job.scores is None or job.result is None or job.prepared is None:
        return ()
    if command.summary is None:
        advice = f"{VERDICT_ADVICE} ({command.failure})" if command.failure else VERDICT_ADVICE
        return (_given_up(job, GiveUp(errors.PLATFORM, advice), None),)
    recorded = VerdictRecorded(job_id=job.job_id, summary=command.summary)
    why = "the adapter is being published"
    return (
        recorded,
        PhaseSet(job_id=job.job_id, phase="registering", reason=why),
        RegistrationWanted(
            job_id=job.job_id,
            model_id=job.spec.model_id,
            line=job.spec.line,
            lineage=_lineage(job, job.result, job.prepared, command.summary, job.scores),
            adapter=job.result.adapter,
        ),
    )


def registered(job: Job, command: RecordRegistered) -> tuple[Event, ...]:
    if job.phase != "registering":
        return ()
    if command.failure is not None:
        advice = f"the adapter could not be published: {command.failure}"
        return (_given_up(job, GiveUp(errors.PLATFORM, advice), None),)
    return (ended(job, "succeeded", model_id=command.model_id),)


# --- the end --------------------------------------------------------------------------------------


def failed(job: Job, code: str, advice: str | None, param: str | None = None) -> JobEnded:
    failure = Failure(code=code, message=None, param=param, advice=advice)
    return ended(job, "failed", failure=failure)


def ended(
    job: Job,
    outcome: JobOutcome,
    model_id: str | None = None,
    failure: Failure | None = None,
) -> JobEnded:
    """Settled: the unused rest of the hold is released."""
    return JobEnded(
        job_id=job.job_id,
        outcome=outcome,
        model_id=model_id,
        failure=failure,
        trained_tokens=job.trained_tokens,
        billable_gpu_ms=job.billable_gpu_ms,
        lost_gpu_ms=job.lost_gpu_ms,
        released_gpu_ms=rest_gpu_ms(job),
        created_at=job.created_at,
    )


def _given_up(job: Job, step: GiveUp, message: Sealed | None) -> JobEnded:
    failure = Failure(code=step.code, message=message, advice=step.advice)
    return ended(job, "failed", failure=failure)


def _work(job: Job, role: Role) -> Work | None:
    base, prepared = job.spec.base, job.prepared
    if prepared is None:
        return None
    if role == "train":
        return TrainWork(
            base_id=base.base_id,
            base_sha256=base.sha256,
            base_path=base.path,
            prepared=prepared,
            hyper=job.hyper,
        )
    if job.result is None:
        return None
    return EvalWork(
        base_id=base.base_id,
        base_sha256=base.sha256,
        base_path=base.path,
        prepared=prepared,
        max_length=job.hyper.max_length,
        seed=job.hyper.seed,
        adapter=job.result.adapter,
    )


def _lineage(
    job: Job, result: TrainResult, prepared: Prepared, summary: ScoreSummary, scores: BlobFile
) -> Lineage:
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
    )
