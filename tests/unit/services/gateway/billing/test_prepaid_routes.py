"""Prepaid credits: operators record them, tenants see what is left."""

import pytest

from tests.unit.services.gateway.control_plane import ControlPlane

BODY = {"reference": "P-1", "amount_micro": 500_000_000, "last_month": "2999-12"}


async def test_a_tenant_sees_what_was_paid_in_advance(api: ControlPlane) -> None:
    client = await api.tenant()
    path = f"/v1/tenants/{client.headers['x-tenant']}/prepaid"
    created = await api.api.post(path, json=BODY)
    assert created.status_code == 201, created.text
    again = await api.api.post(path, json=BODY)
    assert (again.status_code, again.json()) == (201, created.json())
    (shown,) = (await client.get("/v1/billing/prepaid")).json()["data"]
    assert shown == created.json()
    assert (shown["currency"], shown["left_micro"], shown["used_micro"]) == ("EUR", 500_000_000, 0)
    other = await api.api.post(path, json={**BODY, "amount_micro": 10_000})
    assert (other.status_code, other.json()["error"]["param"]) == (409, "reference")
    assert (await client.post(path, json=BODY)).status_code == 403


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"amount_micro": -1}, "amount_micro"),
        ({"amount_micro": 1}, "amount_micro"),
        ({"currency": "USD"}, "currency"),
        ({"last_month": "1999-12"}, "last_month"),
        ({"last_month": "soon"}, "last_month"),
        ({"reference": "carried:x"}, "reference"),
    ],
)
async def test_a_wrong_credit_is_named(
    api: ControlPlane, change: dict[str, object], param: str
) -> None:
    client = await api.tenant()
    path = f"/v1/tenants/{client.headers['x-tenant']}/prepaid"
    answer = await api.api.post(path, json={**BODY, **change})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert (await client.get("/v1/billing/prepaid")).json()["data"] == []


async def test_an_operator_revokes_what_is_left_of_a_wrong_credit(api: ControlPlane) -> None:
    client = await api.tenant()
    path = f"/v1/tenants/{client.headers['x-tenant']}/prepaid"
    await api.api.post(path, json=BODY)
    revoked = await api.api.post(f"{path}/revoke", json={"reference": "P-1"})
    assert revoked.status_code == 200, revoked.text
    (shown,) = (await client.get("/v1/billing/prepaid")).json()["data"]
    assert shown == revoked.json()
    assert (shown["left_micro"], shown["used_micro"], shown["revoked_micro"]) == (0, 0, 500_000_000)
    missing = await api.api.post(f"{path}/revoke", json={"reference": "P-2"})
    assert (missing.status_code, missing.json()["error"]["param"]) == (404, "reference")
    assert (await client.post(f"{path}/revoke", json={"reference": "P-1"})).status_code == 403
