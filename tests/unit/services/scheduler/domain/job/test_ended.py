"""Jobs that ended: kept for days, then forgotten, whatever clocks do."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.units import HOUR_MS, Ms
from services.scheduler.domain.job.ended import (
    GENERATION_MS,
    correct_charge,
    ended_job,
    remember_end,
)
from services.scheduler.domain.job.state import EndedJob, TenantJobs

T0 = 1_700_000_000_000


def end_jobs(moments: list[Ms]) -> TenantJobs:
    """A tenant whose job number n ended at the n-th moment."""
    tenant = TenantJobs()
    for number, at in enumerate(moments):
        tenant = remember_end(
            tenant, f"ftjob-{number}", EndedJob(outcome="succeeded", ended_at=at), at
        )
    return tenant


def test_ops_5_a_tenant_with_a_job_an_hour_for_a_year_remembers_six_days() -> None:
    tenant = end_jobs([T0 + hour * HOUR_MS for hour in range(24 * 365)])
    assert len(tenant.ended) + len(tenant.ended_before) <= 2 * GENERATION_MS // HOUR_MS
    assert ended_job(tenant, f"ftjob-{24 * 365 - 1}") is not None
    assert ended_job(tenant, "ftjob-0") is None


@given(st.lists(st.integers(-HOUR_MS, GENERATION_MS), min_size=1, max_size=30))
def test_no_job_is_forgotten_before_its_time(steps: list[int]) -> None:
    moments, at = list[Ms](), T0
    for step in steps:
        at += step
        moments.append(at)
    tenant, latest = end_jobs(moments), max(moments)
    for number, moment in enumerate(moments):
        if latest - moment < GENERATION_MS:
            kept = ended_job(tenant, f"ftjob-{number}")
            assert kept is not None
            assert kept.ended_at == moment


def test_a_charge_is_corrected_in_either_generation_and_lives_no_longer_for_it() -> None:
    tenant = end_jobs([T0, T0 + GENERATION_MS])
    for job_id in ("ftjob-0", "ftjob-1"):
        ended = ended_job(tenant, job_id)
        assert ended is not None
        tenant = correct_charge(tenant, job_id, replace(ended, outcome="cancelled"))
        assert ended_job(tenant, job_id) == replace(ended, outcome="cancelled")
    at = T0 + 2 * GENERATION_MS
    tenant = remember_end(tenant, "ftjob-2", EndedJob(outcome="failed", ended_at=at), at)
    assert ended_job(tenant, "ftjob-0") is None
