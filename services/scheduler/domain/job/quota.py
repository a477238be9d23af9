"""Budgets as arithmetic: what a month has used, what open holds may still use, what is left."""

from datetime import date, timedelta
from typing import Final

from schemas.account import PlanTerms
from schemas.pool import Role
from schemas.submission import KeyCap
from schemas.units import GpuMs, Micro, Ms, hour_of
from services.scheduler.domain.job.state import OpenJob, TenantJobs
from tunery.plan.time import hold_of

HOURS_PER_DAY: Final = 24
EPOCH: Final = date(1970, 1, 1)


def month_of(hour_utc: int) -> str:
    """Calendar month ("2026-11", UTC) of an hour counted from the epoch."""
    day = EPOCH + timedelta(days=hour_utc // HOURS_PER_DAY)
    return f"{day.year:04}-{day.month:02}"


def terms_at(tenant: TenantJobs, at: Ms) -> PlanTerms | None:
    """What binds admissions at a moment, by the time of the broker."""
    scheduled = tenant.scheduled
    due = scheduled is not None and scheduled.effective_at <= at
    return scheduled.terms if scheduled is not None and due else tenant.terms


def running(tenant: TenantJobs) -> int:
    """Jobs that count against the concurrency limit: wanted to run and not done."""
    return sum(job.wanted == "run" for job in tenant.jobs.values())


def open_gpu_ms(tenant: TenantJobs) -> GpuMs:
    """The unused rest of the holds still open."""
    return sum(rest_gpu_ms(job) for job in tenant.jobs.values())


def rest_gpu_ms(job: OpenJob) -> GpuMs:
    """The unused rest of the job's hold."""
    return 0 if job.hold is None else max(0, job.hold.hold_gpu_ms - job.counted_gpu_ms)


def window_gpu_ms(tenant: TenantJobs, at: Ms) -> GpuMs:
    """What the month of `at` has used, and what the open holds may add to it."""
    used: GpuMs = tenant.used_gpu_ms.get(month_of(hour_of(at)), 0)
    return used + open_gpu_ms(tenant)


def cap_window(cap: KeyCap, at: Ms) -> str:
    """Key of the map entry for this API key and the calendar month of `at`: "key_1/2026-11"."""
    return f"{cap.key_id}/{month_of(hour_of(at))}"


def key_spend_micro(tenant: TenantJobs, cap: KeyCap, at: Ms) -> Micro:
    """What the key's ended jobs cost this month, and what its open ones may cost at most."""
    open_jobs = (
        job.hold.price_max_micro
        for job in tenant.jobs.values()
        if job.hold is not None and job.cap is not None and job.cap.key_id == cap.key_id
    )
    return tenant.spent_micro.get(cap_window(cap, at), 0) + sum(open_jobs)


def attempt_gpu_ms_max(job: OpenJob, role: Role) -> GpuMs:
    """Cap of the job's next attempt: hold − billable + lost, less what evaluation will need.

    A whole number of milliseconds on every slot, so that all amounts of a lease are.
    """
    if job.hold is None:
        return 0
    left = job.hold.hold_gpu_ms - job.billable_gpu_ms + job.lost_gpu_ms
    if role == "train":
        left -= hold_of(job.hold.eval_gpu_ms, job.spec.slots)
    return left // job.spec.slots * job.spec.slots
