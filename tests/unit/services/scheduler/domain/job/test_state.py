"""Usage of a tenant by month, over all its API keys."""

from immutables import Map

from services.scheduler.domain.job.state import MonthUse, TenantJobs


def test_the_use_of_a_tenant_is_read_by_month_without_that_of_its_keys() -> None:
    use = {
        "tenant/2026-11": MonthUse(gpu_ms=7, amounts=Map({"EUR": 5})),
        "tenant/2026-12": MonthUse(gpu_ms=-1),
        "key_1/2026-11": MonthUse(gpu_ms=3),
    }
    assert TenantJobs(use=Map(use)).used_gpu_ms == {"2026-11": 7, "2026-12": -1}
