"""Fold of the `job` journal: total for any order of events.

An event's group is looked up by its exact type, and frequent cases come first: each `isinstance`
that says no to a Struct takes 100 ns, and an event would otherwise pass a dozen of them.
"""

from typing import Final, TypeAlias, assert_never, get_args

from immutables import Map
from msgspec.structs import replace
from typing_extensions import TypeIs

from schemas.account import Lane, PlanChange
from schemas.admission import (
    AdmissionsReviewed,
    AnswersCharged,
    BudgetCounted,
    BudgetRemoved,
    BudgetSet,
    BudgetThresholdReached,
    SuspensionSet,
)
from schemas.anomaly import AnomalyRecorded
from schemas.dataset import EMPTY_SHA256
from schemas.envelope import Context, Rejected, Repeated
from schemas.erasure import JobErasureEvent, JobsClosed, JobsErased
from schemas.integrations import MirrorReported
from schemas.job import (
    AttemptEnded,
    AttemptStarted,
    BaseBound,
    CheckpointRecorded,
    DatasetBound,
    Event,
    FileNoted,
    GateRunEnded,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    LimitsSet,
    LookTaken,
    PhaseSet,
    PinsWanted,
    PlacementUnwanted,
    PlacementWanted,
    RegistrationWanted,
    UsageCounted,
    VerdictDue,
    VerdictRecorded,
    WaitNoted,
    WantedSet,
    WorkDescribed,
)
from schemas.pool import AttemptEnd
from schemas.records import build_from
from schemas.serving import (
    ServingEvent,
    ServingPoolRemoved,
    ServingPoolSet,
    ServingPoolStalled,
    ServingTermBegun,
    ServingTermDraining,
    ServingTermEnded,
    ServingTermUnwanted,
)
from schemas.submission import JobSpec, Price, UsageSource
from schemas.sweep import (
    SweepCancelled,
    SweepEnded,
    SweepEvent,
    SweepRungBegun,
    SweepRunSkipped,
    SweepSubmitted,
    SweepWaiting,
)
from schemas.training import ADAPTER_FILES, WHOLE_FILES, EvalResult, TrainResult, TrainWork
from schemas.units import Ms
from services.scheduler.domain.job.ended import correct_charge, ended_job, remember_end
from services.scheduler.domain.job.erasure_state import evolve_erasure
from services.scheduler.domain.job.quota import (
    charged_micro,
    next_turn,
    terms_at,
    with_answers,
    with_use,
)
from services.scheduler.domain.job.serving_state import evolve_serving
from services.scheduler.domain.job.state import (
    FILES_REMEMBERED_MAX,
    Charge,
    EndedJob,
    FileVerdict,
    OpenJob,
    OpenPlacement,
    OpenTerm,
    Retries,
    TenantJobs,
    Tenants,
)
from services.scheduler.domain.job.sweep_state import end_run, evolve_sweep, open_run
from services.scheduler.domain.pool.faults import is_node_fault
from tunery.plan.micro_batches import rows_at_once, with_at_most
from tunery.plan.price import hourly_micro, job_cost

ReaderEvent: TypeAlias = (
    Rejected | Repeated | BudgetCounted | MirrorReported
)  # of no use to later decisions
BudgetEvent: TypeAlias = BudgetSet | BudgetRemoved | BudgetThresholdReached | AnswersCharged
TenantEvent: TypeAlias = (
    LimitsSet
    | AdmissionsReviewed
    | SuspensionSet
    | BudgetEvent
    | SweepEvent
    | ServingEvent
    | JobErasureEvent
    | FileNoted
    | JobSubmitted
    | UsageCounted
    | JobEnded
)
AttemptEvent: TypeAlias = (
    WorkDescribed
    | PlacementWanted
    | PlacementUnwanted
    | AttemptStarted
    | CheckpointRecorded
    | AnomalyRecorded
    | AttemptEnded
)
JobEvent: TypeAlias = (
    HoldTaken
    | PinsWanted
    | DatasetBound
    | BaseBound
    | WorkDescribed
    | PlacementWanted
    | PlacementUnwanted
    | WantedSet
    | PhaseSet
    | WaitNoted
    | AttemptStarted
    | CheckpointRecorded
    | AnomalyRecorded
    | AttemptEnded
    | VerdictDue
    | LookTaken
    | VerdictRecorded
    | RegistrationWanted
    | GateRunEnded
)
READER_EVENTS: Final = frozenset(get_args(ReaderEvent))
JOB_EVENTS: Final = frozenset(get_args(JobEvent))
ATTEMPT_EVENTS: Final = frozenset(get_args(AttemptEvent))
UNKNOWN_SOURCE: Final = UsageSource()
SETTINGS: Final = (ADAPTER_FILES[1], WHOLE_FILES[1])


def evolve(state: Tenants, event: Event, ctx: Context) -> Tenants:
    """Apply an event to the state of its tenant."""
    tenant = state.get(ctx.key) or TenantJobs()
    evolved = evolve_tenant(tenant, event, ctx)
    return state if evolved is tenant else state.set(ctx.key, evolved)


def evolve_tenant(tenant: TenantJobs, event: Event, ctx: Context) -> TenantJobs:
    """Apply an event to a tenant. Events of jobs that are not open change nothing."""
    if _is_job_event(event):
        job = tenant.jobs.get(event.job_id)
        if job is None:
            return tenant
        return replace(tenant, jobs=tenant.jobs.set(event.job_id, evolve_job(job, event)))
    if _is_reader_event(event):
        return tenant
    return _with_review(_evolve_tenant(tenant, event, ctx), ctx.at)


def _with_review(tenant: TenantJobs, at: Ms) -> TenantJobs:
    """Set when what waits has to be tried again, although no command comes.

    Each command of the tenant tries it as well, so the turns before this event are over.
    """
    stalled = any(pool.stalled_by is not None for pool in tenant.serving_pools.values())
    waits = stalled or any(not sweep.is_cancelled for sweep in tenant.sweeps.values())
    review_at = next_turn(tenant, at) if waits else None
    return tenant if review_at == tenant.review_at else replace(tenant, review_at=review_at)


def _is_job_event(event: Event) -> TypeIs[JobEvent]:
    return type(event) in JOB_EVENTS


def _is_attempt_event(event: JobEvent) -> TypeIs[AttemptEvent]:
    return type(event) in ATTEMPT_EVENTS


def _is_reader_event(event: Event) -> TypeIs[ReaderEvent]:
    return type(event) in READER_EVENTS


def _evolve_tenant(tenant: TenantJobs, event: TenantEvent, ctx: Context) -> TenantJobs:
    match event:
        case UsageCounted():
            return _count_usage(tenant, event)
        case FileNoted():
            verdict = build_from(FileVerdict, event)
            return replace(tenant, files=(verdict, *tenant.files[: FILES_REMEMBERED_MAX - 1]))
        case JobSubmitted():
            job = build_from(
                OpenJob,
                event,
                tenant=ctx.key,
                hyper=event.spec.hyper,
                created_at=ctx.at,
                key_id=event.key_id or (None if event.cap is None else event.cap.key_id),
                result=_known_result(event.spec),
            )
            tenant = _with_price(tenant, event.spec.price, event.lane)
            opened = replace(tenant, jobs=tenant.jobs.set(event.job_id, job))
            return open_run(opened, event.spec.sweep_id, event.job_id)
        case JobEnded():
            return _end_job(tenant, event, ctx.at)
        case LimitsSet():
            return _set_limits(tenant, event, ctx.at)
        case SuspensionSet():
            return replace(tenant, suspended=event.suspended)
        case AdmissionsReviewed():
            return tenant
        case JobsClosed() | JobsErased():
            return evolve_erasure(tenant, event)
        case BudgetSet() | BudgetRemoved() | BudgetThresholdReached() | AnswersCharged():
            return _evolve_budget(tenant, event)
        case (
            SweepSubmitted()
            | SweepWaiting()
            | SweepRunSkipped()
            | SweepRungBegun()
            | SweepCancelled()
            | SweepEnded()
        ):
            return evolve_sweep(tenant, event)
        case (
            ServingPoolSet()
            | ServingPoolRemoved()
            | ServingPoolStalled()
            | ServingTermBegun()
            | ServingTermDraining()
            | ServingTermUnwanted()
            | ServingTermEnded()
        ):
            if isinstance(event, ServingTermBegun):
                tenant = _with_price(tenant, event.price, event.placement.lane)
            return evolve_serving(tenant, event, ctx.at)
        case _:
            assert_never(event)


def _known_result(spec: JobSpec) -> TrainResult | None:
    """Return the model that a job without training evaluates, in the form of a training's result.

    None: the job trains.
    """
    if spec.evaluation is None or spec.start is None:
        return None
    hashes = (file.sha256 for file in spec.start.files if file.name in SETTINGS)
    return TrainResult(
        adapter=spec.start.files,
        config_sha256=next(hashes, EMPTY_SHA256),
        steps=0,
        tokens=0,
        final_loss_ppm=None,
    )


def _evolve_budget(tenant: TenantJobs, event: BudgetEvent) -> TenantJobs:
    match event:
        case BudgetSet(terms=terms):
            return replace(tenant, budgets=tenant.budgets.set(terms.budget_id, terms))
        case BudgetRemoved(budget_id=budget_id):
            if budget_id not in tenant.budgets:
                return tenant
            return replace(tenant, budgets=tenant.budgets.delete(budget_id))
        case BudgetThresholdReached(alert=alert):
            return replace(tenant, alerts=tenant.alerts.set(alert.budget_id, alert))
        case AnswersCharged():
            return replace(tenant, use=with_answers(tenant, event))
        case _:
            assert_never(event)


def _set_limits(tenant: TenantJobs, event: LimitsSet, at: Ms) -> TenantJobs:
    """Set the limits now, or schedule them to follow those that are in force."""
    if event.effective_at is None or event.effective_at <= at:
        return replace(tenant, terms=event.terms, scheduled=None)
    change = PlanChange(terms=event.terms, effective_at=event.effective_at)
    return replace(tenant, terms=terms_at(tenant, at), scheduled=change)


def _without(jobs: Map[str, OpenJob], job_id: str) -> Map[str, OpenJob]:
    return jobs.delete(job_id) if job_id in jobs else jobs


def _end_job(tenant: TenantJobs, event: JobEnded, at: Ms) -> TenantJobs:
    """Remove an open job and remember its end. Its charge is counted already."""
    job = tenant.jobs.get(event.job_id)
    charge = None if job is None else _charge(job)
    ended = EndedJob(outcome=event.outcome, ended_at=at, charge=charge)
    tenant = remember_end(tenant, event.job_id, ended, at)
    if job is not None and charge is not None:
        tenant = end_run(tenant, job, event, charged_micro(charge))
    return replace(tenant, jobs=_without(tenant.jobs, event.job_id))


def _charge(job: OpenJob) -> Charge:
    return Charge(
        key_id=job.key_id,
        price=job.spec.price,
        time=job.counted_micro_gpu_ms,
        tokens=job.counted_tokens,
    )


def _charge_of(tenant: TenantJobs, job_id: str) -> Charge | None:
    """Return the charge of a job, open or ended, or of an open term of a replica."""
    job, term = tenant.jobs.get(job_id), tenant.serving_terms.get(job_id)
    if job is not None:
        return _charge(job)
    if term is not None:
        return Charge(key_id=term.key_id, price=term.price, time=term.counted_micro_gpu_ms)
    ended = ended_job(tenant, job_id)
    return None if ended is None else ended.charge


def _count_usage(tenant: TenantJobs, event: UsageCounted) -> TenantJobs:
    """The window moves from the hold's rest to the month's use; its sum stays."""
    job, ended = tenant.jobs.get(event.job_id), ended_job(tenant, event.job_id)
    term, charge = tenant.serving_terms.get(event.job_id), _charge_of(tenant, event.job_id)
    source = event.source or UNKNOWN_SOURCE
    if charge is None:
        return _count_forgotten(tenant, event, source)
    time = event.gpu_ms * hourly_micro(charge.price, source.role, source.hardware)
    total = replace(charge, time=charge.time + time, tokens=charge.tokens + source.tokens)
    if ended is not None:
        tenant = correct_charge(tenant, event.job_id, replace(ended, charge=total))
    micro = charged_micro(total) - charged_micro(charge)
    use = with_use(tenant, total, event.hour_utc, event.gpu_ms, micro)
    if term is not None:
        tenant = _count_term(tenant, term, event, total)
    if job is None:
        return replace(tenant, use=use)
    counted = replace(
        job,
        counted_gpu_ms=job.counted_gpu_ms + event.gpu_ms,
        counted_micro_gpu_ms=total.time,
        counted_tokens=total.tokens,
    )
    return replace(tenant, jobs=tenant.jobs.set(event.job_id, counted), use=use)


def _count_forgotten(tenant: TenantJobs, event: UsageCounted, source: UsageSource) -> TenantJobs:
    """Time of what is forgotten: where it says its price, it counts in money as well."""
    price = tenant.prices.get(f"{source.price_version}/{source.lane}")
    if price is None:
        return replace(tenant, use=with_use(tenant, None, event.hour_utc, event.gpu_ms, 0))
    time = event.gpu_ms * hourly_micro(price, source.role, source.hardware)
    micro = job_cost(time, source.tokens, price)
    forgotten = Charge(key_id=None, price=price, time=time)
    return replace(tenant, use=with_use(tenant, forgotten, event.hour_utc, event.gpu_ms, micro))


def _with_price(tenant: TenantJobs, price: Price, lane: Lane) -> TenantJobs:
    name = f"{price.version}/{lane}"
    return (
        tenant if name in tenant.prices else replace(tenant, prices=tenant.prices.set(name, price))
    )


def _count_term(
    tenant: TenantJobs, term: OpenTerm, event: UsageCounted, total: Charge
) -> TenantJobs:
    counted = replace(
        term,
        counted_gpu_ms=term.counted_gpu_ms + event.gpu_ms,
        counted_micro_gpu_ms=total.time,
    )
    return replace(tenant, serving_terms=tenant.serving_terms.set(term.term_id, counted))


def evolve_job(job: OpenJob, event: JobEvent) -> OpenJob:
    """Apply an event to an open job."""
    if _is_attempt_event(event):
        return _evolve_attempt(job, event)
    match event:
        case PhaseSet():
            return _set_phase(job, event)
        case HoldTaken():
            if event.session is not None:
                job = replace(job, spec=replace(job.spec, session=event.session))
            return replace(job, hold=event.estimate)
        case DatasetBound():
            return replace(job, prepared=event.prepared)
        case BaseBound():
            return replace(job, base_bound=True)
        case WantedSet():
            return replace(job, wanted=event.wanted)
        case VerdictRecorded():
            loss_ppm = event.summary.adapter_loss_ppm
            return replace(job, scores=None, validation_loss_ppm=None if loss_ppm < 0 else loss_ppm)
        case PinsWanted() | WaitNoted() | RegistrationWanted() | GateRunEnded():
            return job
        case VerdictDue():
            return replace(job, scores=event.scores)
        case LookTaken():
            return replace(job, scores=None, scored=job.scores, look=event.look + 1)
        case _:
            assert_never(event)


def _set_phase(job: OpenJob, event: PhaseSet) -> OpenJob:
    if job.open is None or not event.node_ids:
        return replace(job, phase=event.phase)
    return replace(job, phase=event.phase, open=replace(job.open, node_ids=event.node_ids))


def _evolve_attempt(job: OpenJob, event: AttemptEvent) -> OpenJob:
    match event:
        case WorkDescribed():
            work = event.description.work
            hyper = work.hyper if isinstance(work, TrainWork) else job.hyper
            return replace(job, work_id=event.description.work_id, hyper=hyper)
        case PlacementWanted():
            placement = event.placement
            opened = replace(
                job, attempt=placement.attempt, open=OpenPlacement(role=placement.role)
            )
            if placement.role == "eval":
                return opened
            return replace(opened, checkpoints=placement.checkpoints)
        case PlacementUnwanted():
            asked = None if job.open is None else replace(job.open, asked=event.request.mode)
            return replace(job, open=asked)
        case AttemptStarted():
            bad = {skipped.manifest_sha256 for skipped in event.start.skipped}
            kept = tuple(c for c in job.checkpoints if c.manifest_sha256 not in bad)
            if event.role == "eval":
                return replace(job, checkpoints=kept)
            return replace(job, checkpoints=kept, environment=Map(event.start.environment))
        case CheckpointRecorded():
            newest_first = (event.checkpoint, *job.checkpoints)
            further = event.trained_tokens > job.trained_tokens
            return replace(
                job,
                checkpoints=newest_first[: job.hyper.keep_checkpoints],
                trained_tokens=event.trained_tokens,
                retries=_after_progress(job.retries) if further else job.retries,
            )
        case AnomalyRecorded():
            return replace(job, anomalies=(*job.anomalies, event.anomaly.key))
        case AttemptEnded():
            return _end_attempt(job, event)
        case _:
            assert_never(event)


def _end_attempt(job: OpenJob, event: AttemptEnded) -> OpenJob:
    end = event.end
    excluded = job.excluded_nodes
    has_checkpoint = any(kept.attempt == event.attempt for kept in job.checkpoints)
    if is_node_fault(end.outcome, end.cause, has_checkpoint):
        excluded = (*excluded, *(name for name in end.nodes_at_fault if name not in excluded))
    stopped = end.outcome != "succeeded" and job.open is not None and job.open.asked is not None
    preempted = end.outcome == "preempted" and end.ended_by != "tenant"
    ended = replace(
        job,
        open=None,
        excluded_nodes=excluded,
        # a tenant who pauses uses up no retries
        retries=job.retries if stopped else _count_retry(job.retries, end),
        preemptions=job.preemptions + preempted,
        billable_gpu_ms=event.job_billable_gpu_ms,
        lost_gpu_ms=event.job_lost_gpu_ms,
    )
    if end.outcome != "succeeded":
        return ended
    match end.result:
        case TrainResult():
            trained = max(job.trained_tokens, end.result.tokens)
            return replace(_left(ended, end.result), trained_tokens=trained)
        case EvalResult() | None:
            return ended
        case _:
            assert_never(end.result)


def _left(job: OpenJob, result: TrainResult) -> OpenJob:
    """A job after its training, which may have left one of several variants."""
    spec = job.spec.of_variant(result.variant)
    hyper = job.hyper if spec is job.spec else with_at_most(spec.hyper, rows_at_once(job.hyper))
    training_gpu_ms = job.billable_gpu_ms - job.lost_gpu_ms
    return replace(job, result=result, spec=spec, hyper=hyper, training_gpu_ms=training_gpu_ms)


def _after_progress(retries: Retries) -> Retries:
    """Reset the counters that new progress clears; keep those of the whole training."""
    return Retries(oom=retries.oom, failed=retries.failed)


def _count_retry(retries: Retries, end: AttemptEnd) -> Retries:
    if end.outcome == "succeeded":
        return Retries()
    if end.outcome in {"lost", "preempted"}:
        return replace(retries, fruitless=retries.fruitless + 1)
    if end.outcome == "not_started":
        return retries
    match end.cause:
        case "oom":
            return replace(retries, oom=retries.oom + 1, failed=retries.failed + 1)
        case "bad_node":
            return replace(retries, bad_node=retries.bad_node + 1, failed=retries.failed + 1)
        case "platform" | None:
            return replace(retries, platform=retries.platform + 1, failed=retries.failed + 1)
        case "divergence" | "bad_data" | "user" | "budget" | "nothing_learnt":
            return retries
        case _:
            assert_never(end.cause)
