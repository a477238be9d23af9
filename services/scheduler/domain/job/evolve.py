"""Fold of the `job` journal: total, whatever the order of events."""

from typing import TypeAlias, assert_never

from immutables import Map
from msgspec.structs import replace

from schemas.envelope import Context, Rejected, Repeated
from schemas.job import (
    AttemptEnded,
    AttemptStarted,
    BaseBound,
    CheckpointRecorded,
    DatasetBound,
    Event,
    FileNoted,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    LimitsSet,
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
)
from schemas.training import EvalResult, TrainResult, TrainWork
from schemas.units import Micro, Ms
from services.scheduler.domain.job.quota import cap_window, month_of
from services.scheduler.domain.job.state import (
    FILES_REMEMBERED_MAX,
    FileFact,
    Job,
    Open,
    Retries,
    Summary,
    Tenant,
    Tenants,
    Terms,
)
from tunery.plan.price import price_micro

OfTenant: TypeAlias = LimitsSet | FileNoted | JobSubmitted | UsageCounted | JobEnded
OfJob: TypeAlias = (
    HoldTaken
    | PinsWanted
    | DatasetBound
    | BaseBound
    | PlacementWanted
    | PlacementUnwanted
    | WantedSet
    | PhaseSet
    | WaitNoted
    | AttemptStarted
    | CheckpointRecorded
    | AttemptEnded
    | VerdictDue
    | VerdictRecorded
    | RegistrationWanted
)


def evolve(state: Tenants, event: Event, ctx: Context) -> Tenants:
    tenant = state.get(ctx.key, Tenant())
    evolved = evolve_tenant(tenant, event, ctx)
    return state if evolved is tenant else state.set(ctx.key, evolved)


def evolve_tenant(tenant: Tenant, event: Event, ctx: Context) -> Tenant:
    if isinstance(event, Rejected | Repeated):
        return tenant
    if isinstance(event, OfTenant):
        return _evolved(tenant, event, ctx)
    job = tenant.jobs.get(event.job_id)
    if job is None:
        return tenant
    return replace(tenant, jobs=tenant.jobs.set(event.job_id, evolve_job(job, event)))


def _evolved(tenant: Tenant, event: OfTenant, ctx: Context) -> Tenant:
    match event:
        case LimitsSet():
            terms = Terms(lane=event.lane, limits=event.limits, price_version=event.price_version)
            return replace(tenant, terms=terms)
        case FileNoted():
            fact = FileFact(
                file_id=event.file_id,
                accepted=event.accepted,
                tokens=event.tokens,
                code=event.code,
            )
            return replace(tenant, files=(fact, *tenant.files[: FILES_REMEMBERED_MAX - 1]))
        case JobSubmitted():
            job = Job(
                job_id=event.job_id,
                spec=event.spec,
                hyper=event.spec.hyper,
                lane=event.lane,
                price_version=event.price_version,
                created_at=ctx.at,
                cap=event.cap,
            )
            return replace(tenant, jobs=tenant.jobs.set(event.job_id, job))
        case UsageCounted():
            return _counted(tenant, event)
        case JobEnded():
            summary = Summary(outcome=event.outcome, ended_at=ctx.at)
            return replace(
                tenant,
                jobs=_without(tenant.jobs, event.job_id),
                ended=tenant.ended.set(event.job_id, summary),
                spent_micro=_spent(tenant, event, ctx.at),
            )
        case _:
            assert_never(event)


def _without(jobs: Map[str, Job], job_id: str) -> Map[str, Job]:
    return jobs.delete(job_id) if job_id in jobs else jobs


def _spent(tenant: Tenant, event: JobEnded, at: Ms) -> Map[str, Micro]:
    job = tenant.jobs.get(event.job_id)
    if job is None or job.cap is None:
        return tenant.spent_micro
    window = cap_window(job.cap, at)
    gpu_ms = max(0, event.billable_gpu_ms - event.lost_gpu_ms)
    cost = price_micro(job.spec.price, gpu_ms, event.trained_tokens)
    return tenant.spent_micro.set(window, tenant.spent_micro.get(window, 0) + cost)


def _counted(tenant: Tenant, event: UsageCounted) -> Tenant:
    """The window moves from the hold's rest to the month's use; its sum stays."""
    month = month_of(event.hour)
    used = tenant.used_gpu_ms.get(month, 0) + event.gpu_ms
    jobs = tenant.jobs
    job = jobs.get(event.job_id)
    if job is not None:
        counted = replace(job, counted_gpu_ms=job.counted_gpu_ms + event.gpu_ms)
        jobs = jobs.set(event.job_id, counted)
    return replace(tenant, used_gpu_ms=tenant.used_gpu_ms.set(month, used), jobs=jobs)


def evolve_job(job: Job, event: OfJob) -> Job:
    match event:
        case HoldTaken():
            return replace(job, hold=event.estimate)
        case DatasetBound():
            return replace(job, prepared=event.prepared)
        case BaseBound():
            return replace(job, base_bound=True)
        case WantedSet():
            return replace(job, wanted=event.wanted)
        case PhaseSet():
            return _in_phase(job, event)
        case VerdictRecorded():
            return replace(job, scores=None)
        case PinsWanted() | WaitNoted() | RegistrationWanted():
            return job
        case VerdictDue():
            return replace(job, scores=event.scores)
        case _:
            return _attempted(job, event)


def _in_phase(job: Job, event: PhaseSet) -> Job:
    if job.open is None or event.node_id is None:
        return replace(job, phase=event.phase)
    return replace(job, phase=event.phase, open=replace(job.open, node_id=event.node_id))


def _attempted(
    job: Job,
    event: PlacementWanted | PlacementUnwanted | AttemptStarted | CheckpointRecorded | AttemptEnded,
) -> Job:
    match event:
        case PlacementWanted():
            placed = replace(job, attempt=event.attempt, open=Open(role=event.role))
            if not isinstance(event.work, TrainWork):
                return placed
            return replace(placed, hyper=event.work.hyper, checkpoints=event.checkpoints)
        case PlacementUnwanted():
            open_ = None if job.open is None else replace(job.open, asked=event.mode)
            return replace(job, open=open_)
        case AttemptStarted():
            bad = {skipped.manifest_sha256 for skipped in event.skipped}
            kept = tuple(c for c in job.checkpoints if c.manifest_sha256 not in bad)
            return replace(job, checkpoints=kept)
        case CheckpointRecorded():
            newest_first = (event.checkpoint, *job.checkpoints)
            further = event.trained_tokens > job.trained_tokens
            return replace(
                job,
                checkpoints=newest_first[: job.hyper.keep_checkpoints],
                trained_tokens=event.trained_tokens,
                retries=Retries(oom=job.retries.oom) if further else job.retries,
            )
        case AttemptEnded():
            return _ended(job, event)
        case _:
            assert_never(event)


def _ended(job: Job, event: AttemptEnded) -> Job:
    excluded = job.exclude_nodes
    if event.cause == "bad_node" and event.node_id is not None and event.node_id not in excluded:
        excluded = (*excluded, event.node_id)
    stopped = event.outcome != "succeeded" and job.open is not None and job.open.asked is not None
    ended = replace(
        job,
        open=None,
        exclude_nodes=excluded,
        # a tenant who pauses uses up no retries
        retries=job.retries if stopped else _retries(job.retries, event),
        billable_gpu_ms=event.billable_gpu_ms,
        lost_gpu_ms=event.lost_gpu_ms,
    )
    if event.outcome != "succeeded":
        return ended
    match event.result:
        case TrainResult():
            trained = max(job.trained_tokens, event.result.tokens)
            return replace(ended, result=event.result, trained_tokens=trained)
        case EvalResult() | None:
            return ended
        case _:
            assert_never(event.result)


def _retries(retries: Retries, event: AttemptEnded) -> Retries:
    if event.outcome == "succeeded":
        return Retries()
    if event.outcome in {"lost", "preempted"}:
        return replace(retries, fruitless=retries.fruitless + 1)
    if event.outcome == "not_started":
        return retries
    match event.cause:
        case "oom":
            return replace(retries, oom=retries.oom + 1)
        case "bad_node":
            return replace(retries, bad_node=retries.bad_node + 1)
        case "platform" | None:
            return replace(retries, platform=retries.platform + 1)
        case _:
            return retries
