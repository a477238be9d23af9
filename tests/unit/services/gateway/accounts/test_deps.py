"""Whose jobs and bills a request may be about."""

from typing import Any

from tests.unit.services.gateway.billing.test_usage_routes import asked, now_hour
from tests.unit.services.gateway.billing.used import lease, sliced, use
from tests.unit.services.gateway.control_plane import ControlPlane


async def test_only_an_operator_may_name_another_tenant(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    tenant, hour = owner.headers["x-tenant"], now_hour(api)
    await use(api, sliced(lease(tenant, "ftjob-x"), hour, 7))
    query: dict[str, Any] = {"tenant": tenant, "start_time": hour * 3_600}
    assert (await other.get("/v1/usage", params=query)).status_code == 403
    shown = await asked(api.api, **query)
    assert shown["data"][0]["results"][0]["net_gpu_ms"] == 7
    assert (await asked(other, start_time=hour * 3_600))["data"][0]["results"] == []
    unknown = await api.api.get("/v1/usage", params={"tenant": "nobody"})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "tenant")
