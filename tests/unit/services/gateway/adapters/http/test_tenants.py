"""Tenants and keys, as operators see them."""

from tests.unit.services.gateway.town import Town


async def test_a_tenant_is_created_once_and_listed(api: Town) -> None:
    body = {"id": "acme", "name": "Acme Ltd", "plan": "premium"}
    made = await api.api.post("/v1/tenants", json=body)
    assert made.status_code == 201
    shown = made.json()
    assert (shown["id"], shown["name"], shown["plan"]) == ("acme", "Acme Ltd", "premium")
    assert shown["limits"]["concurrency"] == 20
    again = await api.api.post("/v1/tenants", json=body)
    assert again.status_code == 409
    assert again.headers["x-should-retry"] == "false"
    assert again.json()["error"]["code"] == "already_exists"
    listed = (await api.api.get("/v1/tenants")).json()
    assert "acme" in [one["id"] for one in listed["data"]]


async def test_a_key_is_shown_once_works_and_is_revoked(api: Town) -> None:
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


async def test_scopes_bound_what_a_key_may_do(api: Town) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    made = await api.api.post(f"/v1/tenants/{tenant}/keys", json={"scopes": ["read"]})
    reader = api.client(made.json()["key"], tenant)
    assert (await reader.get("/v1/files")).status_code == 200
    refused = await reader.post("/v1/files")
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "insufficient_permissions"
    assert (await client.get("/v1/tenants")).status_code == 403


async def test_an_expired_key_is_refused(api: Town) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    made = await api.api.post(f"/v1/tenants/{tenant}/keys", json={"expires_at": 1_000})
    refused = await api.client(made.json()["key"]).get("/v1/files")
    assert refused.json()["error"]["message"] == "The API key has expired."
