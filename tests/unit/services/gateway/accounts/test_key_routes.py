"""Tenants manage their own keys: a key itself always, other keys with the scope keys.write."""

from typing import Any

import httpx

from tests.unit.services.gateway.control_plane import ADMIN_KEY, ControlPlane


async def another(api: ControlPlane, client: httpx.AsyncClient, *scopes: str) -> tuple[Any, str]:
    """A client with one more key of the same tenant, and the key's id."""
    tenant = client.headers["x-tenant"]
    created = (await api.api.post(f"/v1/tenants/{tenant}/keys", json={"scopes": scopes})).json()
    return api.client(created["key"], tenant), created["id"]


async def test_a_tenants_keys_are_shown_without_secrets(api: ControlPlane) -> None:
    client = await api.tenant()
    _, other_id = await another(api, client, "read")
    own = (await client.get("/v1/keys/current")).json()
    listed = (await client.get("/v1/keys")).json()
    assert [key["id"] for key in listed["data"]] == [other_id, own["id"]]
    assert own["hint"] == client.headers["authorization"][-4:]
    assert "sha256" not in str(listed)
    assert client.headers["authorization"].split()[1] not in str(listed)
    stranger = await api.tenant()
    assert (await stranger.get(f"/v1/keys/{own['id']}")).status_code == 404


async def test_a_key_is_rotated_by_its_newest_secret_only(api: ControlPlane) -> None:
    client = await api.tenant()
    own = (await client.get("/v1/keys/current")).json()
    turned = (await client.post("/v1/keys/current/rotate", json={"overlap_seconds": 60})).json()
    assert turned["id"] == own["id"]
    assert turned["hint"] == turned["key"][-4:]
    renewed = api.client(turned["key"])
    assert (await renewed.get("/v1/files")).status_code == 200
    assert (await client.get("/v1/files")).status_code == 200  # the overlap
    refused = await client.post("/v1/keys/current/rotate")
    assert refused.status_code == 403
    assert "newest secret" in refused.json()["error"]["message"]
    at_once = await renewed.post("/v1/keys/current/rotate", json={"overlap_seconds": 0})
    assert at_once.status_code == 200
    assert (await renewed.get("/v1/files")).status_code == 401


async def test_a_key_cannot_rotate_another_key(api: ControlPlane) -> None:
    client = await api.tenant()
    keeper, _ = await another(api, client, "read", "keys.write")
    own = (await client.get("/v1/keys/current")).json()
    refused = await keeper.post(f"/v1/keys/{own['id']}/rotate")
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "insufficient_permissions"


async def test_another_key_is_revoked_with_the_scope_for_it(api: ControlPlane) -> None:
    client = await api.tenant()
    keeper, keeper_id = await another(api, client, "keys.write")
    victim, victim_id = await another(api, client, "read")
    _, operator_id = await another(api, client, "admin")
    assert (await victim.delete(f"/v1/keys/{keeper_id}")).status_code == 403  # `read` only
    refused = await client.delete(f"/v1/keys/{victim_id}")  # `write`, which is for itself
    assert refused.status_code == 403
    assert "keys.write" in refused.json()["error"]["message"]
    gone = await keeper.delete(f"/v1/keys/{victim_id}")
    assert gone.json()["revoked_at"] is not None
    assert (await victim.get("/v1/files")).status_code == 401
    assert (await keeper.delete(f"/v1/keys/{operator_id}")).status_code == 403
    assert (await client.delete("/v1/keys/current")).status_code == 200
    assert (await client.get("/v1/files")).status_code == 401


async def test_first_hour2_u6_the_operators_key_is_listed_for_its_tenant_alone(
    api: ControlPlane,
) -> None:
    """Answers and jobs are billed to it by that name."""
    listed = (await api.client(ADMIN_KEY).get("/v1/keys")).json()
    assert [key["id"] for key in listed["data"]][-1:] == ["bootstrap"]
    assert ADMIN_KEY not in str(listed)
    other = (await (await api.tenant()).get("/v1/keys")).json()
    assert "bootstrap" not in [key["id"] for key in other["data"]]


async def test_the_bootstrap_key_is_not_one_that_routes_change(api: ControlPlane) -> None:
    shown = await api.client(ADMIN_KEY).get("/v1/keys/current")
    assert shown.status_code == 404
