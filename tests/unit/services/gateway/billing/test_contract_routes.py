"""Contract terms: operators set them, tenants see them, and drafts have their lines."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.services.gateway.control_plane import ControlPlane
from tunery.billing.periods import period_of

MONTH = f"{datetime.now(UTC):%Y-%m}"
TERMS: dict[str, Any] = {
    "buyer": "ACME Inc.",
    "seller": "Us Ltd.",
    "taxes": [{"name": "VAT", "rate_ppm": 190_000}],
    "due_days": 14,
    "discounts": [
        {
            "reference": "K-1",
            "rate_ppm": 100_000,
            "lane": None,
            "first_month": MONTH,
            "last_month": None,
        }
    ],
    "overage": {"surcharge_ppm": 0, "gpu_hour_micro": 3_000_000, "currency": "EUR"},
    "commitment": {
        "reference": "K-2",
        "amount_micro": 5_000_000,
        "currency": "EUR",
        "first_month": None,
        "last_month": None,
    },
}


async def test_a_tenant_sees_the_terms_that_an_operator_set(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    before = (await client.get("/v1/billing/terms")).json()
    assert (before["buyer"], before["discounts"], before["commitment"]) == (None, [], None)
    answer = await api.api.put(f"/v1/tenants/{tenant}/billing", json=TERMS)
    assert answer.status_code == 200, answer.text
    months = {"from_month": MONTH, "next_from_month": None}
    assert answer.json() == {"object": "tenant.billing_terms", "tenant": tenant, **months, **TERMS}
    shown = await api.until(client, "/v1/billing/terms", lambda terms: terms["buyer"] is not None)
    assert shown == answer.json()
    draft = (await client.get(f"/v1/invoices/{MONTH}-EUR")).json()
    assert (draft["seller"], draft["net_micro"]) == ("Us Ltd.", 5_000_000)
    lines = (await client.get(f"/v1/invoices/{MONTH}-EUR/lines")).json()["data"]
    assert [line["kind"] for line in lines] == ["commitment", "tax"]
    page = (await client.get(f"/v1/invoices/{MONTH}-EUR/page")).text
    assert "apply to the whole month" in page


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"discounts": [{"reference": "K", "rate_ppm": 1_000_001}]}, "discounts"),
        ({"discounts": [{"reference": "K", "rate_ppm": -1}]}, "discounts"),
        ({"discounts": [{"reference": "K", "rate_ppm": 1, "last_month": "x"}]}, "discounts"),
        ({"commitment": {"reference": "K", "amount_micro": 1, "currency": "USD"}}, "commitment"),
        ({"overage": {}}, "overage"),
    ],
)
async def test_wrong_terms_are_named(api: ControlPlane, change: dict[str, Any], param: str) -> None:
    client = await api.tenant()
    path = f"/v1/tenants/{client.headers['x-tenant']}/billing"
    answer = await api.api.put(path, json=change)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)
    assert (await api.api.put("/v1/tenants/nobody/billing", json={})).status_code == 404


async def test_review2_m8_terms_of_a_month_to_come_change_nothing_before_it(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    path = f"/v1/tenants/{client.headers['x-tenant']}/billing"
    now = period_of(api.deps.clock.now_ms())
    following = now.following().name
    answer = await api.api.put(path, json={"due_days": 3})
    assert answer.json()["from_month"] == now.name
    later = {"taxes": [{"name": "VAT", "rate_ppm": 190_000}], "from_month": following}
    answer = await api.api.put(path, json=later)
    assert (answer.json()["from_month"], answer.json()["due_days"]) == (following, 30)
    shown = await api.until(
        client, "/v1/billing/terms", lambda terms: terms["next_from_month"] is not None
    )
    assert (shown["due_days"], shown["taxes"], shown["next_from_month"]) == (3, [], following)
    to_come = (await client.get("/v1/billing/terms", params={"month": following})).json()
    assert to_come == answer.json()
    wrong = await client.get("/v1/billing/terms", params={"month": "2026-13"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "month")
    over = await api.api.put(path, json={"due_days": 3, "from_month": "1999-01"})
    assert (over.status_code, over.json()["error"]["param"]) == (409, "from_month")
