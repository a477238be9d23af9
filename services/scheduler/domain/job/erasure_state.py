"""Erasure in the state of a tenant: what events change."""

from typing import Final

from msgspec.structs import replace

from schemas.erasure import JobErasureEvent, JobsClosed
from services.scheduler.domain.job.state import TenantJobs

KEPT: Final = (
    *("terms", "scheduled", "suspended", "prices", "use"),
    *("ended", "ended_before", "generation_at", "terms_begun"),
)


def evolve_erasure(tenant: TenantJobs, event: JobErasureEvent) -> TenantJobs:
    """Apply one event of an erasure: usage stays, because it is on bills; all else of jobs goes."""
    if isinstance(event, JobsClosed):
        return replace(tenant, closed=True)
    return TenantJobs(**{name: getattr(tenant, name) for name in KEPT}, closed=True, erased=True)
