"""`/v1/audit`: who may see which entries, filters, order."""

import time

from tests.unit.services.gateway.audit.test_observing import entries
from tests.unit.services.gateway.control_plane import ControlPlane


async def test_security_m7_a_tenant_sees_its_own_entries_alone(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    mine, foreign = await api.upload(client), await api.upload(other)
    await entries(api, 1, object_id=foreign["id"])
    await entries(api, 1, object_id=mine["id"])
    listed = (await client.get("/v1/audit")).json()["data"]
    assert {entry["tenant"] for entry in listed} == {client.headers["x-tenant"]}
    assert mine["id"] in str(listed)
    by_operator = [entry for entry in listed if entry["kind"] == "operator"]
    assert by_operator
    assert {entry["key_id"] for entry in by_operator} == {None}
    hidden = await client.get("/v1/audit", params={"tenant": other.headers["x-tenant"]})
    assert hidden.status_code == 403
    searched = await client.get("/v1/audit", params={"object_id": foreign["id"]})
    assert searched.json()["data"] == []


async def test_security_m7_reading_entries_needs_the_scope_of_keys(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    body = {"name": "jobs", "scopes": ["jobs.read"]}
    created = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()
    assert (await api.client(created["key"]).get("/v1/audit")).status_code == 403


async def test_entries_are_paged_in_both_orders_and_found_by_time(api: ControlPlane) -> None:
    client = await api.tenant()
    files = [(await api.upload(client))["id"] for _ in range(3)]
    tenant = client.headers["x-tenant"]
    noted = await entries(api, 3, tenant=tenant, kind="change")
    assert [entry["object_ids"] for entry in noted] == [[file] for file in files]
    first = {"kind": "change", "order": "asc", "limit": "2"}
    page = (await client.get("/v1/audit", params=first)).json()
    assert (page["has_more"], page["data"]) == (True, noted[:2])
    after = {"kind": "change", "order": "asc", "after": page["last_id"]}
    assert (await client.get("/v1/audit", params=after)).json()["data"] == noted[2:]
    now = int(time.time())
    for query, count in (({"since": now + 99}, 0), ({"until": now + 99}, 3)):
        answer = await client.get("/v1/audit", params={"kind": "change", **query})
        assert len(answer.json()["data"]) == count
