"""`GET /v1/metrics`: what a tenant's own Prometheus is told."""

import asyncio
from unittest import mock

from prometheus_client.parser import text_string_to_metric_families

from schemas.units import HOUR_MS
from services.gateway.billing import metric_routes
from services.gateway.billing.metric_routes import TENANT_METRICS, KeptFigures
from tests.unit.services.gateway.billing.used import credited, lease, sliced, use
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tunery.runtime.telemetry.catalogue import LABELS

BOUNDED = LABELS.keys() | {"role", "reason", "currency", "budget"}


async def test_use_spend_and_budgets_of_the_month_are_the_tenants_own(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    other, _ = await ready(api)
    ended, running = [(await submit(client, file_id)).json()["id"] for _ in range(2)]
    await client.post(f"/v1/fine_tuning/jobs/{ended}/cancel")
    path = f"/v1/fine_tuning/jobs/{ended}"
    await api.until(client, path, lambda job: job["finished_at"] is not None)
    hour = api.deps.clock.now_ms() // HOUR_MS
    ref = lease(client.headers["x-tenant"], running)
    await use(api, sliced(ref, hour), credited(ref, hour, HOUR_MS // 2))
    answer = await client.get("/v1/metrics")
    assert answer.status_code == 200, answer.text
    figures = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert figures["tunery_tenant_jobs", "queued"] == 1
    assert figures["tunery_tenant_month_jobs_ended", "cancelled"] == 1
    assert figures["tunery_tenant_month_gpu_seconds_used", "standard", "train"] == 3_600
    assert figures["tunery_tenant_month_gpu_seconds_billed", "standard", "train"] == 1_800
    (invoice,) = (await client.get("/v1/invoices")).json()["data"]
    assert figures["tunery_tenant_month_spend", "EUR"] == invoice["amount_micro"] / 1_000_000 > 0
    theirs = (await other.get("/v1/metrics")).text
    assert "gpu_seconds_used{" not in theirs
    assert 'outcome="cancelled"} 0.0' in theirs


def test_no_label_of_a_tenants_metric_is_without_a_bound() -> None:
    assert {label for metric in TENANT_METRICS for label in metric.labels} <= BOUNDED


async def test_scrapes_at_once_are_one_reading_and_a_failed_one_is_tried_again(
    api: ControlPlane,
) -> None:
    kept, figures = KeptFigures(api.deps), mock.AsyncMock(side_effect=(OSError("away"), ()))
    with mock.patch.object(metric_routes, "tenant_figures", figures):
        reads = (kept.read("acme") for _ in range(5))
        errors = await asyncio.gather(*reads, return_exceptions=True)
        assert {type(error) for error in errors} == {OSError}
        assert [await kept.read("acme") for _ in range(3)] == [b""] * 3
    assert figures.await_count == 2
