"""Jobs that ended: kept for days, then forgotten, whatever clocks do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.admission import TENANT_BUDGET
from schemas.job import CancelJob, RecordUsage
from schemas.submission import UsageSource
from schemas.units import HOUR_MS, Ms, hour_of
from services.scheduler.domain.job.ended import (
    GENERATION_MS,
    correct_charge,
    ended_job,
    remember_end,
)
from services.scheduler.domain.job.quota import month_standing
from services.scheduler.domain.job.state import EndedJob, TenantJobs
from simulator.control_plane.samples import limits, submit
from tests.unit.services.scheduler.lives import TENANT, new_tenant

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


@pytest.mark.parametrize("days", [1, 7, 40])
@pytest.mark.parametrize("gpu_ms", [HOUR_MS, HOUR_MS // 3])
def test_review2_6_11_a_credit_lowers_money_and_hours_however_late_it_is(
    days: int, gpu_ms: int
) -> None:
    """Six days after the end of its job it lowered hours alone."""
    decider = new_tenant().accept(limits(), submit("ftjob-1"))
    used_at, currency = decider.at, "EUR"
    use = RecordUsage(job_id="ftjob-1", attempt=1, hour_utc=hour_of(used_at), gpu_ms=2 * HOUR_MS)
    decider.accept(use, CancelJob(job_id="ftjob-1"))
    before = month_standing(decider.state[TENANT], TENANT_BUDGET, currency, used_at)
    assert before.used_micro > 0
    for number in range(2, days + 2):
        decider.at += 24 * HOUR_MS
        decider.accept(submit(f"ftjob-{number}"), CancelJob(job_id=f"ftjob-{number}"))
    source = UsageSource(price_version="2026-11", lane="standard")
    decider.accept(replace(use, gpu_ms=-gpu_ms, source=source))
    after = month_standing(decider.state[TENANT], TENANT_BUDGET, currency, used_at)
    assert before.used_gpu_ms - after.used_gpu_ms == gpu_ms
    exact = before.used_micro * gpu_ms / (2 * HOUR_MS)
    assert abs(before.used_micro - after.used_micro - exact) <= 1  # rounded by itself
    assert decider.refolded() == decider.state
