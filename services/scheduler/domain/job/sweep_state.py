"""The fold of sweeps: which of their jobs are open, and how the others ended."""

from typing import assert_never

from msgspec.structs import replace

from schemas.job import JobEnded
from schemas.sweep import (
    SweepCancelled,
    SweepEnded,
    SweepEvent,
    SweepRungBegun,
    SweepRunSkipped,
    SweepSubmitted,
    SweepWaiting,
)
from schemas.units import Micro
from services.scheduler.domain.job.state import EndedRun, OpenJob, OpenSweep, TenantJobs


def evolve_sweep(tenant: TenantJobs, event: SweepEvent) -> TenantJobs:
    """Apply an event of a sweep to its tenant. Without an open sweep nothing changes."""
    if isinstance(event, SweepSubmitted):
        terms = event.terms
        opened = OpenSweep(terms=terms, trials=tuple(range(len(terms.trials))))
        return _with(tenant, opened)
    sweep = tenant.sweeps.get(event.sweep_id)
    if sweep is None:
        return tenant
    match event:
        case SweepWaiting():
            return _with(tenant, replace(sweep, waits_for=event.reason.code))
        case SweepRunSkipped():
            return _with(tenant, replace(sweep, skipped=(*sweep.skipped, event.job_id)))
        case SweepRungBegun():
            return _with(tenant, replace(sweep, rung=event.rung, trials=event.trials))
        case SweepCancelled():
            return _with(tenant, replace(sweep, is_cancelled=True))
        case SweepEnded():
            return replace(tenant, sweeps=tenant.sweeps.delete(event.sweep_id))
        case _:
            assert_never(event)


def open_run(tenant: TenantJobs, sweep_id: str | None, job_id: str) -> TenantJobs:
    """A tenant one of whose sweeps has a new job."""
    sweep = None if sweep_id is None else tenant.sweeps.get(sweep_id)
    if sweep is None:
        return tenant
    opened = replace(sweep, open_runs=(*sweep.open_runs, job_id), waits_for=None)
    return _with(tenant, opened)


def end_run(tenant: TenantJobs, job: OpenJob, event: JobEnded, micro: Micro) -> TenantJobs:
    """A tenant after the end of a job, which may be one of a sweep. micro: what it was charged."""
    sweep = None if job.spec.sweep_id is None else tenant.sweeps.get(job.spec.sweep_id)
    if sweep is None:
        return tenant
    open_runs = tuple(job_id for job_id in sweep.open_runs if job_id != job.job_id)
    ended_runs = sweep.ended_runs
    for run_id, run in _ended_runs(job, event.outcome == "succeeded").items():
        ended_runs = ended_runs.set(run_id, run)
    gpu_ms = event.billable_gpu_ms - event.lost_gpu_ms
    bearer = replace(ended_runs[job.job_id], gpu_ms=gpu_ms, micro=micro)  # so that it counts once
    ended_runs = ended_runs.set(job.job_id, bearer)
    return _with(tenant, replace(sweep, open_runs=open_runs, ended_runs=ended_runs))


def _ended_runs(job: OpenJob, has_succeeded: bool) -> dict[str, EndedRun]:
    """Return the loss and the published version of each configuration of a job."""
    version = job.job_id if has_succeeded else None
    if not job.spec.variants:
        run = EndedRun(published_by=version, loss_ppm=job.validation_loss_ppm, gpu_ms=0, micro=0)
        return {job.job_id: run}
    left = None if job.result is None else job.result.variant
    losses = () if job.result is None else job.result.losses_ppm
    return {
        variant.run_id: EndedRun(
            published_by=version if number == left else None,
            loss_ppm=losses[number] if number < len(losses) else None,
            gpu_ms=0,
            micro=0,
        )
        for number, variant in enumerate(job.spec.variants)
    }


def _with(tenant: TenantJobs, sweep: OpenSweep) -> TenantJobs:
    return replace(tenant, sweeps=tenant.sweeps.set(sweep.terms.sweep_id, sweep))
