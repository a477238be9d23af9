"""Monthly budgets through the API: set, refused by, listed, removed."""

from typing import Any

import httpx

from tests.unit.services.gateway.control_plane import BASE, ControlPlane

SCOPES = ["read", "write", "budgets.write"]


async def keeper(api: ControlPlane) -> tuple[httpx.AsyncClient, str, dict[str, Any]]:
    """A client that may change budgets, its key's id, and a body that submits a job."""
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    created = (await api.api.post(f"/v1/tenants/{tenant}/keys", json={"scopes": SCOPES})).json()
    client = api.client(created["key"], tenant)
    file = await api.upload(client)
    await api.validated(client, file["id"])
    return client, created["id"], {"model": BASE.base_id, "training_file": file["id"]}


async def test_money_a_budget_refuses_the_job_that_could_pass_it(api: ControlPlane) -> None:
    client, _, job = await keeper(api)
    created = await client.post("/v1/budgets", json={"max_amount_micro": 1})
    assert created.status_code == 200, created.text
    refused = await client.post("/v1/fine_tuning/jobs", json=job)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (429, "budget_exceeded")
    assert error["type"] == "insufficient_quota", "as OpenAI's, where nothing more may be spent"
    assert refused.headers["x-should-retry"] == "false"
    assert "'tenant'" in error["message"]
    assert created.json()["month"] in error["message"]
    removed = await client.delete("/v1/budgets/tenant")
    assert removed.json() == {"id": "tenant", "object": "budget", "deleted": True}
    assert (await client.post("/v1/fine_tuning/jobs", json=job)).status_code == 200


async def test_money_what_is_used_held_and_left_is_the_limit(api: ControlPlane) -> None:
    client, key_id, job = await keeper(api)
    body = {"key_id": key_id, "max_amount_micro": 10**9, "max_gpu_hours": 100}
    await client.post("/v1/budgets", json=body)
    submitted = (await client.post("/v1/fine_tuning/jobs", json=job)).json()
    (budget,) = (await client.get("/v1/budgets")).json()["data"]
    assert (budget["id"], budget["key_id"], budget["currency"]) == (key_id, key_id, "EUR")
    assert budget["held_gpu_ms"] == submitted["cost"]["hold_gpu_ms"]
    assert budget["held_micro"] == submitted["cost"]["amount_max_micro"]
    for unit, most in (("gpu_ms", "max_gpu_ms"), ("micro", "max_amount_micro")):
        parts = (budget[f"{part}_{unit}"] for part in ("used", "held", "left"))
        assert sum(parts) == budget[most]
    await client.post(f"/v1/fine_tuning/jobs/{submitted['id']}/cancel")
    again = (await client.get(f"/v1/budgets/{key_id}")).json()
    assert (again["held_gpu_ms"], again["left_micro"]) == (0, 10**9)


async def test_a_budget_that_is_lowered_shows_what_it_has_reached(api: ControlPlane) -> None:
    client, _, job = await keeper(api)
    await client.post("/v1/fine_tuning/jobs", json=job)
    shown = (await client.post("/v1/budgets", json={"max_amount_micro": 1})).json()
    assert (shown["reached_percent"], shown["max_gpu_ms"], shown["left_gpu_ms"]) == (
        100,
        None,
        None,
    )
    assert shown["left_micro"] == 1 - shown["held_micro"] < 0


async def test_a_key_that_may_only_write_cannot_change_budgets(api: ControlPlane) -> None:
    finance, _, _ = await keeper(api)
    tenant = finance.headers["x-tenant"]
    key = (await api.api.post(f"/v1/tenants/{tenant}/keys", json={})).json()
    client = api.client(key["key"], tenant)
    await finance.post("/v1/budgets", json={"max_amount_micro": 1})
    for refused in (
        await client.post("/v1/budgets", json={"max_amount_micro": 10**9}),
        await client.delete("/v1/budgets/tenant"),
    ):
        assert refused.status_code == 403
        assert "budgets.write" in refused.json()["error"]["message"]
    (budget,) = (await client.get("/v1/budgets")).json()["data"]
    assert budget["max_amount_micro"] == 1


async def test_budgets_that_mean_nothing_are_refused(api: ControlPlane) -> None:
    client, _, _ = await keeper(api)
    for body, status, param in (
        ({}, 400, "max_amount_micro"),
        ({"max_amount_micro": 0}, 400, "max_amount_micro"),
        ({"max_amount_micro": 10**16}, 400, "max_amount_micro"),
        ({"max_gpu_hours": -1}, 400, "max_gpu_hours"),
        ({"key_id": "key_9", "max_gpu_hours": 1}, 404, "key_id"),
    ):
        refused = await client.post("/v1/budgets", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (status, param), body
    assert (await client.get("/v1/budgets/tenant")).status_code == 404
    assert (await client.delete("/v1/budgets/tenant")).status_code == 404
