"""Erasure of a tenant: all that is open ends, and then its jobs are forgotten."""

from collections.abc import Sequence
from typing import Final

from schemas import errors
from schemas.admission import SetBudget
from schemas.envelope import Context, Rejected
from schemas.erasure import CloseJobs, JobsClosed, JobsErased
from schemas.job import Command, Event, RecordFile, ResumeJob, SubmitJob, WantedSet
from schemas.reasons import refusing
from schemas.serving import RemoveServingPool, SetServingPool
from schemas.sweep import SubmitSweep, SweepCancelled
from services.scheduler.domain.job.evolve import evolve_job, evolve_tenant
from services.scheduler.domain.job.phases import answer
from services.scheduler.domain.job.serving import remove_serving_pool
from services.scheduler.domain.job.state import TenantJobs
from services.scheduler.domain.job.steps import after_change

CANCELLED_MAX: Final = 100  # jobs of one decision, whose record has a limit
REFUSED: Final = (SubmitJob, SubmitSweep, ResumeJob, SetServingPool, SetBudget)


def refuse_closed(tenant: TenantJobs, command: Command, ctx: Context) -> tuple[Event, ...] | None:
    """Reject or ignore commands of an erased tenant; None: the command is decided as usual."""
    if not tenant.closed:
        return None
    if isinstance(command, REFUSED):
        erased = refusing("tenant_erased", tenant=ctx.key)
        return (Rejected(code=errors.ILLEGAL_STATE, reason=erased),)
    return () if isinstance(command, RecordFile) else None


def close_jobs(tenant: TenantJobs) -> tuple[Event, ...]:
    """Cancel everything that can be cancelled; registrations end by themselves."""
    open_jobs = [
        job
        for _, job in sorted(tenant.jobs.items())
        if answer("cancel", job.wanted, job.phase) == "accept"
    ]
    events: list[Event] = [JobsClosed(more=len(open_jobs) > CANCELLED_MAX)]
    for sweep_id, sweep in sorted(tenant.sweeps.items()):
        if not sweep.is_cancelled:
            events.append(SweepCancelled(sweep_id=sweep_id))
    for name in sorted(tenant.serving_pools):
        events.extend(remove_serving_pool(tenant, RemoveServingPool(serving_pool_id=name)))
    for job in open_jobs[:CANCELLED_MAX]:
        wanted = WantedSet(job_id=job.job_id, wanted="cancelled")
        events.extend((wanted, *after_change(evolve_job(job, wanted))))
    return tuple(events)


def follow_erasure(tenant: TenantJobs, events: Sequence[Event], ctx: Context) -> tuple[Event, ...]:
    """The end of the erasure, once nothing is open after these events."""
    for event in events:
        tenant = evolve_tenant(tenant, event, ctx)
    is_open = tenant.jobs or tenant.sweeps or tenant.serving_terms
    return () if is_open or tenant.erased else (JobsErased(),)


def is_erasing(tenant: TenantJobs, command: Command) -> bool:
    """Return whether the erasure is in progress, or begins with this command."""
    return not tenant.erased and (tenant.closed or isinstance(command, CloseJobs))
