"""Decider of `job`: commands of clients, and facts of other streams.

Commands of clients are refused with a code; facts of other streams never are: what comes late or
twice leads to no events.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias, assert_never, get_args

from typing_extensions import TypeIs

from schemas import errors
from schemas.admission import (
    AdmissionsReviewed,
    AnswersCharged,
    RecordAnswers,
    RemoveBudget,
    SetBudget,
    SetSuspension,
    SuspensionSet,
)
from schemas.anomaly import RecordAnomaly
from schemas.envelope import Context, Rejected, Tick, reject
from schemas.erasure import CloseJobs
from schemas.integrations import MirrorReported, RecordMirror
from schemas.job import (
    BaseBound,
    CancelJob,
    CheckpointRecorded,
    Command,
    DatasetBound,
    Event,
    FileNoted,
    LimitsSet,
    PauseJob,
    RaiseSession,
    RecordBase,
    RecordCheckpoint,
    RecordClosed,
    RecordDataset,
    RecordDraining,
    RecordFile,
    RecordGranted,
    RecordLook,
    RecordRegistered,
    RecordSessionEnding,
    RecordStarted,
    RecordUsage,
    RecordVerdict,
    RecordWait,
    ResumeJob,
    SetLimits,
    SubmitJob,
    UsageCounted,
    WantedSet,
)
from schemas.reasons import Failure, failing, refusing
from schemas.records import build_from
from schemas.serving import RemoveServingPool, SetServingPool
from schemas.sweep import CancelSweep, SubmitSweep, SweepCancelled
from schemas.units import Ms
from services.scheduler.domain.job import attempts, steps
from services.scheduler.domain.job.admission import take_hold, tokens_of
from services.scheduler.domain.job.budgets import change_budget, follow_budgets
from services.scheduler.domain.job.ended import ended_job
from services.scheduler.domain.job.erasure import (
    close_jobs,
    follow_erasure,
    is_erasing,
    refuse_closed,
)
from services.scheduler.domain.job.evolve import evolve_job, evolve_tenant
from services.scheduler.domain.job.phases import WANTS, Change, answer
from services.scheduler.domain.job.quota import running, terms_at
from services.scheduler.domain.job.serving import (
    decide_term_fact,
    follow_serving,
    remove_serving_pool,
    set_serving_pool,
)
from services.scheduler.domain.job.sessions import end_waiting_session, raise_session
from services.scheduler.domain.job.state import OpenJob, TenantJobs, Tenants
from services.scheduler.domain.job.submitting import submit_job
from services.scheduler.domain.job.sweeps import follow_sweeps, submit_sweep

Changing: TypeAlias = CancelJob | PauseJob | ResumeJob
AttemptFact: TypeAlias = (
    RecordWait
    | RecordGranted
    | RecordStarted
    | RecordCheckpoint
    | RecordDraining
    | RecordAnomaly
    | RecordClosed
)
JobFact: TypeAlias = (
    RecordDataset | RecordBase | RecordLook | RecordVerdict | RecordRegistered | AttemptFact
)
# Looked up by exact type: an `isinstance` that says no to a Struct takes 100 ns.
JOB_FACTS: Final = frozenset(get_args(JobFact))
ATTEMPT_FACTS: Final = frozenset(get_args(AttemptFact))


def decide(state: Tenants, command: Command, ctx: Context) -> tuple[Event, ...]:
    """Decide one command of one tenant."""
    tenant = state.get(ctx.key) or TenantJobs()
    if (refused := refuse_closed(tenant, command, ctx)) is not None:
        return refused
    events = _decide(tenant, command, ctx)
    if any(type(event) is Rejected for event in events):
        return events
    if tenant.sweeps or isinstance(command, SubmitSweep):
        events = (*events, *follow_sweeps(tenant, events, ctx))
    if tenant.serving_pools or isinstance(command, SetServingPool):
        events = (*events, *follow_serving(tenant, events, ctx))
    if is_erasing(tenant, command):
        events = (*events, *follow_erasure(tenant, events, ctx))
    if tenant.budgets or isinstance(command, SetBudget):
        return (*events, *follow_budgets(tenant, events, ctx))
    return events


def _is_job_fact(command: Command) -> TypeIs[JobFact]:
    return type(command) in JOB_FACTS


def _is_attempt_fact(fact: JobFact) -> TypeIs[AttemptFact]:
    return type(fact) in ATTEMPT_FACTS


def _decide(tenant: TenantJobs, command: Command, ctx: Context) -> tuple[Event, ...]:
    if _is_job_fact(command):
        job = tenant.jobs.get(command.job_id)
        if job is not None:
            return _decide_job_fact(job, command)
        term = tenant.serving_terms.get(command.job_id)
        return () if term is None else decide_term_fact(term, command)
    match command:
        case RecordUsage():
            return _usage(command)
        case RecordMirror():
            return _mirror(tenant, command)
        case SubmitJob():
            return submit_job(tenant, command, ctx)
        case SubmitSweep():
            return submit_sweep(tenant, command, ctx)
        case CancelSweep():
            return _cancel_sweep(tenant, command, ctx)
        case SetServingPool():
            return set_serving_pool(tenant, command, ctx)
        case RemoveServingPool():
            return remove_serving_pool(tenant, command)
        case CancelJob():
            return _change(tenant, command, "cancel", ctx)
        case PauseJob():
            return _change(tenant, command, "pause", ctx)
        case ResumeJob():
            return _change(tenant, command, "resume", ctx)
        case RaiseSession():
            return raise_session(tenant, command, ctx)
        case RecordSessionEnding():
            return end_waiting_session(tenant, command)
        case CloseJobs():
            return () if tenant.erased else close_jobs(tenant)
        case SetBudget() | RemoveBudget():
            return change_budget(tenant, command)
        case RecordAnswers():
            return (AnswersCharged(hour_utc=command.hour_utc, costs=command.costs),)
        case RecordFile():
            return _file(tenant, command, ctx)
        case SetLimits():
            return (LimitsSet(terms=command.terms, effective_at=command.effective_at),)
        case SetSuspension():
            if command.suspended == tenant.suspended:
                return ()
            return (SuspensionSet(suspended=command.suspended),)
        case Tick():
            is_due = tenant.review_at is not None and tenant.review_at <= ctx.at
            return (AdmissionsReviewed(),) if is_due else ()
        case _:
            assert_never(command)


# --- files ----------------------------------------------------------------------------------------


def _file(tenant: TenantJobs, command: RecordFile, ctx: Context) -> tuple[Event, ...]:
    """Take the hold of every job that waits for this file, or end it; in order of submission."""
    events: list[Event] = [
        FileNoted(
            file_id=command.file_id,
            accepted=command.accepted,
            tokens=command.tokens,
            code=None if command.failure is None else command.failure.code,
        )
    ]
    jobs = (
        job
        for job in tenant.jobs.values()
        if job.hold is None and job.spec.training_file == command.file_id
    )
    for job in sorted(jobs, key=lambda job: (job.created_at, job.job_id)):
        follow_up = _after_validation(tenant, job, command, ctx)
        events.extend(follow_up)
        for event in follow_up:
            tenant = evolve_tenant(tenant, event, ctx)
    return tuple(events)


def _after_validation(
    tenant: TenantJobs, job: OpenJob, command: RecordFile, ctx: Context
) -> Sequence[Event]:
    tokens = tokens_of(command.accepted, command.tokens, job.spec.base)
    if tokens is None:
        unusable = Failure(code=errors.FILE_REJECTED, reason=refusing("file_rejected"))
        return (steps.fail_job(job, command.failure or unusable, param="training_file"),)
    held = take_hold(tenant, job, tokens, ctx.at)
    if isinstance(held, Rejected):
        return (steps.fail_job(job, Failure(code=held.code, reason=held.reason)),)
    return held


# --- clients' changes -----------------------------------------------------------------------------


def _change(
    tenant: TenantJobs, command: Changing, change: Change, ctx: Context
) -> tuple[Event, ...]:
    job = tenant.jobs.get(command.job_id)
    if job is None:
        return _no_open_job(tenant, command.job_id, change)
    match answer(change, job.wanted, job.phase):
        case "repeat":
            return ()
        case "refuse":
            reason = refusing("job_change", change=change, phase=job.phase, wanted=job.wanted)
            return reject(errors.ILLEGAL_STATE, reason)
        case "accept":
            pass
    if change == "resume" and (refusal := _no_resumption(tenant, job, ctx.at)) is not None:
        return (refusal,)
    wanted = WantedSet(job_id=job.job_id, wanted=WANTS[change])
    return (wanted, *steps.after_change(evolve_job(job, wanted)))


def _cancel_sweep(tenant: TenantJobs, command: CancelSweep, ctx: Context) -> tuple[Event, ...]:
    """Submit no more jobs of a sweep, and cancel those that can be."""
    sweep = tenant.sweeps.get(command.sweep_id)
    if sweep is None:
        missing = refusing("sweep_missing", sweep_id=command.sweep_id)
        return reject(errors.NOT_FOUND, missing, "id")
    if sweep.is_cancelled:
        return ()
    events: list[Event] = [SweepCancelled(sweep_id=command.sweep_id)]
    for job_id in sweep.open_runs:
        changes = _change(tenant, CancelJob(job_id=job_id), "cancel", ctx)
        events.extend(event for event in changes if not isinstance(event, Rejected))
    return tuple(events)


def _no_resumption(tenant: TenantJobs, job: OpenJob, at: Ms) -> Rejected | None:
    """Why the tenant cannot resume this job now; None when it can."""
    if tenant.suspended:
        return Rejected(code=errors.SUSPENDED, reason=refusing("tenant_suspended"))
    terms = terms_at(tenant, at)
    if terms is None or terms.limits.concurrency > running(tenant, besides=job.job_id):
        return None
    full = refusing("jobs_at_most", limit=terms.limits.concurrency)
    return Rejected(code=errors.CONCURRENCY_LIMIT, reason=full)


def _no_open_job(tenant: TenantJobs, job_id: str, change: Change) -> tuple[Event, ...]:
    ended = ended_job(tenant, job_id)
    if ended is None:
        return reject(errors.NOT_FOUND, refusing("job_missing", job_id=job_id))
    if (change, ended.outcome) == ("cancel", "cancelled"):
        return ()  # as while its end was not recorded yet
    reason = refusing("job_ended", change=change, outcome=ended.outcome)
    return reject(errors.ILLEGAL_STATE, reason)


# --- facts ----------------------------------------------------------------------------------------


def _usage(command: RecordUsage) -> tuple[Event, ...]:
    if command.gpu_ms == 0 and (command.source is None or command.source.tokens == 0):
        return ()
    counted = build_from(UsageCounted, command)
    return (counted,)


def _mirror(tenant: TenantJobs, command: RecordMirror) -> tuple[Event, ...]:
    """Record how mirroring ended, after the end of the job. Ignored once the job is forgotten."""
    job_id = command.job_id
    if job_id not in tenant.jobs and ended_job(tenant, job_id) is None:
        return ()
    return (MirrorReported(job_id=job_id, report=command.report),)


def _decide_job_fact(job: OpenJob, command: JobFact) -> tuple[Event, ...]:
    if _is_attempt_fact(command):
        return _decide_attempt_fact(job, command)
    match command:
        case RecordDataset():
            return _dataset(job, command)
        case RecordBase():
            return _base(job, command)
        case RecordLook():
            return steps.after_look(job, command)
        case RecordVerdict():
            return steps.after_verdict(job, command)
        case RecordRegistered():
            return steps.after_registration(job, command)
        case _:
            assert_never(command)


def _dataset(job: OpenJob, command: RecordDataset) -> tuple[Event, ...]:
    if job.hold is None or job.prepared is not None:
        return ()
    if command.prepared is None:
        unprepared = Failure(code=errors.FILE_REJECTED, reason=failing("preparation_failed"))
        return (steps.fail_job(job, command.failure or unprepared, param="training_file"),)
    bound = DatasetBound(job_id=job.job_id, prepared=command.prepared)
    return (bound, *steps.after_binding(evolve_job(job, bound)))


def _base(job: OpenJob, command: RecordBase) -> tuple[Event, ...]:
    if job.base_bound or (job.hold is None and command.base is not None):
        return ()
    if command.base is None:
        missing = failing("base_missing", base_id=job.spec.base.base_id)
        failure = command.failure or Failure(code=errors.UNKNOWN_BASE, reason=missing)
        return (steps.fail_job(job, failure, param="model"),)
    if command.base.sha256 != job.spec.base.sha256:
        changed = Failure(code=errors.BASE_CHANGED, reason=failing("base_changed"))
        return (steps.fail_job(job, changed, param="model"),)
    bound = BaseBound(job_id=job.job_id)
    return (bound, *steps.after_binding(evolve_job(job, bound)))


def _decide_attempt_fact(job: OpenJob, command: AttemptFact) -> tuple[Event, ...]:
    attempt = (
        command.checkpoint.attempt if isinstance(command, RecordCheckpoint) else command.attempt
    )
    if job.open is None or attempt != job.attempt:
        return ()
    match command:
        case RecordGranted():
            return attempts.note_grant(job, job.open.role, command)
        case RecordStarted():
            return attempts.start_attempt(job, job.open.role, command)
        case RecordClosed():
            ended = attempts.end_attempt(job, command)
            return (ended, *steps.after_attempt(evolve_job(job, ended), ended))
        case RecordCheckpoint():
            newest = next(iter(job.checkpoints), None)
            known = None if newest is None else (newest.attempt, newest.manifest_sha256)
            if known == (attempt, command.checkpoint.manifest_sha256):
                return ()  # an idle session has said once more that it is saved
            recorded = CheckpointRecorded(
                job_id=job.job_id,
                checkpoint=command.checkpoint,
                trained_tokens=max(job.trained_tokens, command.checkpoint.tokens),
            )
            return (recorded,)
        case RecordDraining():
            return attempts.note_draining(job, job.open.role)
        case RecordAnomaly():
            return attempts.record_anomaly(job, command)
        case RecordWait():  # of older releases: readers compute why something waits
            return ()
        case _:
            assert_never(command)
