"""The fold of a tenant's jobs: totals, memory with a bound, and events of jobs that are gone."""

from typing import Any

import pytest
from immutables import Map

from schemas.envelope import Context, Repeated
from schemas.job import Event, FileNoted, UsageCounted, WantedSet
from schemas.units import HOUR_MS, month_of
from services.scheduler.domain.job.evolve import evolve, evolve_tenant
from services.scheduler.domain.job.state import FILES_REMEMBERED_MAX, OpenJob, TenantJobs
from simulator.control_plane.samples import MINUTE, T0
from tests.unit.services.scheduler.lives import (
    JOB_ID,
    LIVES,
    TENANT,
    closed,
    granted,
    job_of,
    lived,
    started,
)

NOW = T0 // HOUR_MS


def context(at: int = T0, key: str = TENANT) -> Context:
    return Context(at=at, key=key, tenant=key, command_id="c", seq=1)


def counted(gpu_ms: int, hour_utc: int = NOW, job_id: str = JOB_ID) -> UsageCounted:
    return UsageCounted(job_id=job_id, hour_utc=hour_utc, gpu_ms=gpu_ms)


def tenant_of(phase: Any) -> TenantJobs:
    tenant: TenantJobs = lived(phase).state[TENANT]
    return tenant


def job(phase: Any) -> OpenJob:
    open_job = job_of(lived(phase))
    assert open_job is not None
    return open_job


@pytest.mark.parametrize(
    "event",
    [WantedSet(job_id="ftjob-9", wanted="paused"), Repeated(of="c")],
    ids=lambda event: type(event).__name__,
)
def test_events_of_jobs_that_are_not_open_change_nothing(event: Event) -> None:
    before = tenant_of("running")
    assert evolve_tenant(before, event, context()) is before
    tenants = Map({TENANT: before})
    assert evolve(tenants, event, context()) is tenants


def test_late_use_of_a_job_that_ended_still_counts_in_its_month() -> None:
    before = tenant_of("done")
    after = evolve_tenant(before, counted(500), context())
    month = month_of(NOW)
    assert after.used_gpu_ms[month] - before.used_gpu_ms.get(month, 0) == 500
    assert after.jobs == before.jobs


def test_use_belongs_to_the_month_of_its_hour_and_credits_are_taken_off() -> None:
    next_month = NOW + 31 * 24
    after = tenant_of("running")
    for event in (counted(700), counted(-200), counted(50, next_month)):
        after = evolve_tenant(after, event, context())
    assert (after.used_gpu_ms[month_of(NOW)], after.used_gpu_ms[month_of(next_month)]) == (500, 50)
    assert after.jobs[JOB_ID].counted_gpu_ms == 550


def test_so_many_validations_are_remembered_newest_first() -> None:
    tenant = TenantJobs()
    for number in range(FILES_REMEMBERED_MAX + 2):
        noted = FileNoted(file_id=f"file-{number}", accepted=True, tokens=())
        tenant = evolve_tenant(tenant, noted, context())
    assert len(tenant.files) == FILES_REMEMBERED_MAX
    assert tenant.files[0].file_id == f"file-{FILES_REMEMBERED_MAX + 1}"
    assert tenant.files[-1].file_id == "file-2"


def test_a_job_that_ended_leaves_its_outcome_alone() -> None:
    tenant = tenant_of("done")
    assert JOB_ID not in tenant.jobs
    assert tenant.ended[JOB_ID].outcome == "succeeded"
    assert tenant.ended[JOB_ID].ended_at == T0


def test_totals_of_attempts_add_up_and_a_success_keeps_its_result() -> None:
    trained = job("evaluating")
    assert (trained.billable_gpu_ms, trained.lost_gpu_ms) == (MINUTE, 0)
    assert trained.result is not None
    assert trained.trained_tokens == trained.result.tokens
    lost = lived("running").accept(closed(1, "lost", lost=MINUTE // 2, ended_by="node"))
    again = job_of(lost.accept(granted(2), started(2), closed(2, "lost", ended_by="node")))
    assert again is not None
    assert (again.billable_gpu_ms, again.lost_gpu_ms) == (2 * MINUTE, MINUTE // 2)
    assert again.retries.fruitless == 2


def test_a_bad_node_is_excluded_once() -> None:
    failed = closed(1, "failed", cause="bad_node", ended_by="node")
    decider = lived("running").accept(failed, granted(2), started(2))
    again = decider.accept(closed(2, "failed", cause="bad_node", ended_by="node"))
    excluded = job_of(again)
    assert excluded is not None
    assert excluded.excluded_nodes == ("a",)


def test_only_strangers_preempt() -> None:
    by_platform = lived("running").accept(closed(1, "preempted", ended_by="platform"))
    victim = job_of(by_platform)
    assert victim is not None
    assert victim.preemptions == 1
    by_tenant = lived("running").accept(closed(1, "preempted", ended_by="tenant"))
    own = job_of(by_tenant)
    assert own is not None
    assert own.preemptions == 0


def test_every_life_is_folded_the_same_again() -> None:
    for phase in LIVES:
        decider = lived(phase)
        assert decider.refolded() == decider.state, phase
