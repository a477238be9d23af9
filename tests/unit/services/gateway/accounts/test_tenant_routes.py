"""Tenants and keys, as operators see them."""

from datetime import UTC, datetime

from tests.unit.services.gateway.control_plane import BASE, ControlPlane


async def test_a_tenant_is_created_once_and_listed(api: ControlPlane) -> None:
    body = {"id": "acme", "name": "Acme Ltd", "plan": "premium"}
    created = await api.api.post("/v1/tenants", json=body)
    assert created.status_code == 201
    shown = created.json()
    assert (shown["id"], shown["name"], shown["plan"]) == ("acme", "Acme Ltd", "premium")
    assert shown["limits"]["concurrency"] == 20
    again = await api.api.post("/v1/tenants", json=body)
    assert again.status_code == 409
    assert again.headers["x-should-retry"] == "false"
    assert again.json()["error"]["code"] == "already_exists"
    listed = (await api.api.get("/v1/tenants")).json()
    assert "acme" in [item["id"] for item in listed["data"]]


async def test_a_key_is_shown_once_works_and_is_revoked(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    assert (await client.get("/v1/files")).status_code == 200
    keys = (await api.api.get(f"/v1/tenants/{tenant}/keys")).json()["data"]
    assert "key" not in keys[0]
    assert keys[0]["hint"] == client.headers["authorization"][-4:]
    gone = await api.api.delete(f"/v1/tenants/{tenant}/keys/{keys[0]['id']}")
    assert gone.json()["revoked_at"] is not None
    refused = await client.get("/v1/files")
    assert refused.status_code == 401
    assert refused.json()["error"]["message"] == "The API key was revoked."


async def test_scopes_bound_what_a_key_may_do(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    created = await api.api.post(f"/v1/tenants/{tenant}/keys", json={"scopes": ["read"]})
    reader = api.client(created.json()["key"], tenant)
    assert (await reader.get("/v1/files")).status_code == 200
    refused = await reader.post("/v1/files")
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "insufficient_permissions"
    assert (await client.get("/v1/tenants")).status_code == 403


async def test_an_expired_key_is_refused(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    created = await api.api.post(f"/v1/tenants/{tenant}/keys", json={"expires_at": 1_000})
    refused = await api.client(created.json()["key"]).get("/v1/files")
    assert refused.json()["error"]["message"] == "The API key has expired."


async def test_a_scope_may_be_of_one_resource(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    body = {"scopes": ["files.read", "jobs.write"]}
    created = await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)
    key = api.client(created.json()["key"], tenant)
    assert (await key.get("/v1/files")).status_code == 200
    refused = await key.get("/v1/models")
    assert refused.status_code == 403
    assert "'models.read'" in refused.json()["error"]["message"]
    assert (await key.get("/v1/fine_tuning/jobs")).status_code == 403
    assert (await key.post("/v1/fine_tuning/jobs", json={})).status_code == 400
    unknown = await api.api.post(f"/v1/tenants/{tenant}/keys", json={"scopes": ["files.burn"]})
    assert unknown.status_code == 400


async def test_a_rotated_key_has_two_secrets_for_a_while(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    path = f"/v1/tenants/{tenant}/keys"
    (key,) = (await api.api.get(path)).json()["data"]
    turned = (await api.api.post(f"{path}/{key['id']}/rotate", json={})).json()
    assert (turned["id"], turned["scopes"]) == (key["id"], key["scopes"])
    renewed = api.client(turned["key"], tenant)
    assert (await renewed.get("/v1/files")).status_code == 200
    assert (await client.get("/v1/files")).status_code == 200
    at_once = (await api.api.post(f"{path}/{key['id']}/rotate", json={"overlap_seconds": 0})).json()
    refused = await renewed.get("/v1/files")
    assert refused.status_code == 401
    assert "rotated" in refused.json()["error"]["message"]
    assert (await api.client(at_once["key"]).get("/v1/files")).status_code == 200
    assert (await client.get("/v1/files")).status_code == 401


async def test_a_key_trains_only_the_models_it_may(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    file = await api.upload(client)
    await api.validated(client, file["id"])
    body = {"models": ["other-model"]}
    created = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()
    assert created["models"] == ["other-model"]
    job = {"model": BASE.base_id, "training_file": file["id"]}
    refused = await api.client(created["key"]).post("/v1/fine_tuning/jobs", json=job)
    assert refused.status_code == 403
    assert refused.json()["error"]["param"] == "model"
    assert "other-model" in refused.json()["error"]["message"]


async def test_a_job_that_may_cost_more_than_the_keys_cap_is_refused(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    file = await api.upload(client)
    await api.validated(client, file["id"])
    job = {"model": BASE.base_id, "training_file": file["id"]}
    path = f"/v1/tenants/{tenant}/keys"
    poor = (await api.api.post(path, json={"spend_cap_micro": 1})).json()
    refused = await api.client(poor["key"]).post("/v1/fine_tuning/jobs", json=job)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "spend_cap_exceeded"
    assert refused.headers["x-should-retry"] == "false"
    rich = (await api.api.post(path, json={"spend_cap_micro": 10**12})).json()
    assert rich["spend_cap_currency"] == "EUR"
    created = await api.client(rich["key"]).post("/v1/fine_tuning/jobs", json=job)
    assert created.status_code == 200, created.text


async def test_operators_credit_a_tenant_once_for_each_reference(api: ControlPlane) -> None:
    client = await api.tenant()
    path = f"/v1/tenants/{client.headers['x-tenant']}/adjustments"
    body = {"reference": "T-17", "amount_micro": -5_000_000, "reason": "goodwill"}
    created = await api.api.post(path, json=body)
    assert created.status_code == 201
    shown = created.json()
    assert (shown["amount_micro"], shown["currency"], shown["reason"]) == (
        -5_000_000,
        "EUR",
        "goodwill",
    )
    assert len(shown["period"]) == len("2026-11")
    again = await api.api.post(path, json=body)
    assert (again.status_code, again.json()["error"]["param"]) == (409, "reference")
    zero = await api.api.post(path, json={**body, "reference": "T-18", "amount_micro": 0})
    assert (zero.status_code, zero.json()["error"]["param"]) == (400, "amount_micro")
    unknown = await api.api.post(path, json={**body, "reason": "because"})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "reason")
    assert (await client.post(path, json=body)).status_code == 403


async def test_money_b6_a_changed_plan_prices_the_next_job(api: ControlPlane) -> None:
    client = await api.tenant(plan="standard")
    path = f"/v1/tenants/{client.headers['x-tenant']}/plan"
    changed = await api.api.post(path, json={"plan": "premium"})
    assert changed.status_code == 200, changed.text
    shown = changed.json()
    assert (shown["plan"], shown["limits"]["concurrency"]) == ("premium", 20)
    file = await api.upload(client)
    await api.validated(client, file["id"])
    job = {"model": BASE.base_id, "training_file": file["id"]}
    created = await client.post("/v1/fine_tuning/jobs", json=job)
    assert created.status_code == 200, created.text
    assert created.json()["lane"] == "premium"


async def test_a_plan_of_the_next_month_is_shown_beside_the_present_one(api: ControlPlane) -> None:
    client = await api.tenant(plan="standard")
    path = f"/v1/tenants/{client.headers['x-tenant']}/plan"
    body = {"plan": "free", "effective": "next_month"}
    shown = (await api.api.post(path, json=body)).json()
    assert (shown["plan"], shown["scheduled_plan"]["plan"]) == ("standard", "free")
    begins = datetime.fromtimestamp(shown["scheduled_plan"]["effective_at"], UTC)
    assert (begins.day, begins.hour, begins.minute, begins.second) == (1, 0, 0, 0)
    assert begins > datetime.now(UTC)
    taken_back = (await api.api.post(path, json={"plan": "standard"})).json()
    assert taken_back["scheduled_plan"] is None


async def test_a_change_of_plan_that_means_nothing_is_refused(api: ControlPlane) -> None:
    client = await api.tenant()
    path = f"/v1/tenants/{client.headers['x-tenant']}/plan"
    assert (await client.post(path, json={"plan": "free"})).status_code == 403
    assert (await api.api.post("/v1/tenants/nobody/plan", json={"plan": "free"})).status_code == 404
    for body, param in (
        ({}, "plan"),
        ({"plan": "gold"}, "plan"),
        ({"price_version": "1999-01"}, "price_version"),
        ({"plan": "free", "effective": "yesterday"}, "effective"),
        (
            {"limits": {"soft_gpu_ms": 2, "hard_gpu_ms": 1, "concurrency": 1}},
            "limits.soft_gpu_ms",
        ),
    ):
        refused = await api.api.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), body


async def test_a_suspended_tenant_reads_and_submits_nothing(api: ControlPlane) -> None:
    client = await api.tenant()
    path = f"/v1/tenants/{client.headers['x-tenant']}"
    file = await api.upload(client)
    await api.validated(client, file["id"])
    job = {"model": BASE.base_id, "training_file": file["id"]}
    created = (await client.post("/v1/fine_tuning/jobs", json=job)).json()
    paused = await client.post(f"/v1/fine_tuning/jobs/{created['id']}/pause")
    assert paused.status_code == 200, paused.text
    assert (await client.post(f"{path}/suspend")).status_code == 403
    suspended = await api.api.post(f"{path}/suspend")
    assert suspended.json()["suspended_at"] is not None
    for refused in (
        await client.post("/v1/fine_tuning/jobs", json=job),
        await client.post(f"/v1/fine_tuning/jobs/{created['id']}/resume"),
    ):
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (403, "tenant_suspended")
        assert "Ask an operator" in error["message"]
    assert (await client.get(f"/v1/fine_tuning/jobs/{created['id']}")).status_code == 200
    resumed = await api.api.post(f"{path}/resume")
    assert resumed.json()["suspended_at"] is None
    again = await client.post(f"/v1/fine_tuning/jobs/{created['id']}/resume")
    assert again.status_code == 200, again.text


async def test_the_draft_of_this_month_has_the_taxes_of_the_tenant(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    terms = {"buyer": "ACME Inc.", "taxes": [{"name": "VAT", "rate_ppm": 190_000}], "due_days": 14}
    path = f"/v1/tenants/{tenant}"
    answer = await api.api.put(f"{path}/billing", json=terms)
    assert answer.status_code == 200, answer.text
    assert terms.items() <= answer.json().items()
    charge = {"reference": "T-1", "amount_micro": 100_000_000, "reason": "contract"}
    assert (await api.api.post(f"{path}/adjustments", json=charge)).status_code == 201
    (draft,) = (await client.get("/v1/invoices")).json()["data"]
    assert (draft["buyer"], draft["total_micro"]) == ("ACME Inc.", 119_000_000)
    future = {**charge, "reference": "T-2", "period": "2999-01"}
    refused = await api.api.post(f"{path}/adjustments", json=future)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "period")
    wrong = {"taxes": [{"name": "VAT", "rate_ppm": -1}]}
    assert (await api.api.put(f"{path}/billing", json=wrong)).status_code == 400
