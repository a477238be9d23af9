"""Ended jobs, in two generations: each leaves memory between three and six days after its end."""

from typing import Final

from immutables import Map
from msgspec.structs import replace

from schemas.units import DAY_MS, Ms
from services.scheduler.domain.job.state import EndedJob, TenantJobs

# Credits and questions about a job come within minutes of its end, after an outage within its
# length. Later the gateway's views still show the job, and a credit still lowers what its tenant
# has used in the month, at the price that it names; only of the API key nothing is known any more.
GENERATION_MS: Final = 3 * DAY_MS


def ended_job(tenant: TenantJobs, job_id: str) -> EndedJob | None:
    """Return the remaining record of an ended job; None: it never was, is open, or was
    forgotten.
    """
    return tenant.ended.get(job_id) or tenant.ended_before.get(job_id)


def remember_end(tenant: TenantJobs, job_id: str, ended: EndedJob, at: Ms) -> TenantJobs:
    """Add a job to those that ended, and forget the older generation when its time is up.

    `at` may go back, as clocks do: then a generation merely lives longer.
    """
    if tenant.ended and at - tenant.generation_at >= GENERATION_MS:
        tenant = replace(tenant, ended=Map(), ended_before=tenant.ended)
    begun = at if not tenant.ended else tenant.generation_at
    return replace(tenant, ended=tenant.ended.set(job_id, ended), generation_at=begun)


def correct_charge(tenant: TenantJobs, job_id: str, ended: EndedJob) -> TenantJobs:
    """Replace the charge of a job that ended, in whichever generation it is."""
    if job_id in tenant.ended:
        return replace(tenant, ended=tenant.ended.set(job_id, ended))
    return replace(tenant, ended_before=tenant.ended_before.set(job_id, ended))
