"""State of an erased tenant: its usage, which is billed, and nothing else."""

from schemas.erasure import JobsClosed, JobsErased
from services.scheduler.domain.job.erasure_state import evolve_erasure
from services.scheduler.domain.job.state import TenantJobs
from simulator.control_plane.samples import limits, submit
from tests.unit.services.scheduler.lives import TENANT, new_tenant


def test_security_h4_use_stays_and_all_else_is_forgotten() -> None:
    decider = new_tenant().accept(limits(), submit())
    tenant: TenantJobs = decider.state[TENANT]
    closed = evolve_erasure(tenant, JobsClosed())
    assert closed.closed
    assert closed.jobs == tenant.jobs
    erased = evolve_erasure(closed, JobsErased())
    assert (erased.erased, len(erased.jobs), len(erased.files)) == (True, 0, 0)
    assert (erased.use, erased.terms) == (tenant.use, tenant.terms)
