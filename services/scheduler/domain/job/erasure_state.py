"""Erasure in the state of a tenant: what events change."""

from msgspec.structs import replace

from schemas.erasure import JobErasureEvent, JobsClosed
from services.scheduler.domain.job.state import TenantJobs


def evolve_erasure(tenant: TenantJobs, event: JobErasureEvent) -> TenantJobs:
    """Apply one event of an erasure: usage stays, because it is on bills; all else of jobs goes."""
    if isinstance(event, JobsClosed):
        return replace(tenant, closed=True)
    return TenantJobs(
        terms=tenant.terms,
        scheduled=tenant.scheduled,
        suspended=tenant.suspended,
        ended=tenant.ended,
        ended_before=tenant.ended_before,
        generation_at=tenant.generation_at,
        use=tenant.use,
        prices=tenant.prices,
        terms_begun=tenant.terms_begun,
        closed=True,
        erased=True,
    )
