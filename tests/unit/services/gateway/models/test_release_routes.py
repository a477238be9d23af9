"""Approvals, the history of a version and the bytes of base models, over HTTP."""

from pathlib import Path

import httpx

from services.gateway.views.tables.models import BASES
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.models.test_base_folders import a_base
from tests.unit.services.gateway.models.test_routes import version


async def second_key(api: ControlPlane, client: httpx.AsyncClient) -> tuple[httpx.AsyncClient, str]:
    """Another key of the same tenant, and its id."""
    tenant = client.headers["x-tenant"]
    created = (await api.api.post(f"/v1/tenants/{tenant}/keys", json={"name": "second"})).json()
    return api.client(created["key"], tenant), created["id"]


async def test_a_promotion_needs_the_approvals_of_its_rule(api: ControlPlane) -> None:
    client = await api.tenant()
    other, other_id = await second_key(api, client)
    model_id = await version(api, client, "one")
    rule = {"stage": "production", "required": 1, "approvers": [other_id]}
    created = await client.post("/v1/approval_rules", json=rule)
    assert created.status_code == 200, created.text
    listed = (await client.get("/v1/approval_rules")).json()["data"]
    assert [(entry["id"], entry["required"], entry["approvers"]) for entry in listed] == [
        ("production", 1, [other_id])
    ]
    promotion = {"stage": "production", "expected": None}
    refused = await client.post(f"/v1/models/{model_id}/promote", json=promotion)
    assert refused.status_code == 409
    message = refused.json()["error"]["message"]
    assert "needs approvals for production, by keys other than its author's: 1 more." in message
    approval = {"stage": "production"}
    not_asked = await client.post(f"/v1/models/{model_id}/approve", json=approval)
    assert (not_asked.status_code, not_asked.json()["error"]["param"]) == (409, "model")
    approved = await other.post(f"/v1/models/{model_id}/approve", json=approval)
    assert approved.json()["id"] == model_id
    promoted = await client.post(f"/v1/models/{model_id}/promote", json=promotion)
    assert promoted.json()["stage"] == "production"
    changes = (await client.get(f"/v1/models/{model_id}/history")).json()["data"]
    assert [(change["change"], change["stage"]) for change in changes] == [
        ("published", "dev"),
        ("approval", "production"),
        ("promotion", "production"),
    ]
    own = (await client.get("/v1/keys/current")).json()["id"]
    assert [change["key_id"] for change in changes] == [None, other_id, own]


async def test_a_replaced_version_says_so_in_its_history(api: ControlPlane) -> None:
    client = await api.tenant()
    first, second = await version(api, client, "a"), await version(api, client, "b")
    for name, expected in ((first, None), (second, first)):
        body = {"stage": "staging", "expected": expected}
        await client.post(f"/v1/models/{name}/promote", json=body)
    await client.post(f"/v1/models/{second}/rollback", json={"stage": "staging"})
    histories = {}
    for name in (first, second):
        changes = (await client.get(f"/v1/models/{name}/history")).json()["data"]
        histories[name] = [(change["change"], change["stage"]) for change in changes]
    published, promotion = ("published", "dev"), ("promotion", "staging")
    replaced = ("replaced", "dev")
    assert histories == {
        first: [published, promotion, replaced, ("rollback", "staging")],
        second: [published, promotion, replaced],
    }


async def test_a_key_that_may_not_change_keys_sets_no_rule(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    body = {"name": "trainer", "scopes": ["models.write", "jobs.write", "keys.read"]}
    created = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()
    trainer = api.client(created["key"], tenant)
    rules, rule = "/v1/approval_rules", {"stage": "production", "required": 0}
    assert (await trainer.post(rules, json=rule)).status_code == 403
    assert (await client.post(rules, json={**rule, "required": 101})).status_code == 400
    assert (await client.post(rules, json={**rule, "stage": "dev"})).status_code == 400
    few = await client.post(rules, json={**rule, "required": 2, "approvers": ["k"]})
    assert (few.status_code, few.json()["error"]["param"]) == (409, "approvers")


async def test_one_changed_byte_of_a_base_model_makes_its_versions_stale(
    api: ControlPlane, tmp_path: Path
) -> None:
    """Found by the operator's check, and by the next promotion without one."""
    client = await api.tenant()
    folder = a_base(tmp_path / "small")
    added = await api.api.post("/v1/bases", json={"id": "small", "path": str(folder)})
    assert (added.status_code, added.json()["drifted_sha256"]) == (201, None)
    row = await api.deps.views.first(BASES, {"id": "small"})
    assert row is not None
    model_id = await version(api, client, "on-small", base=row.base)
    config = folder / "config.json"
    data = config.read_bytes()
    config.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if data[-1:] != b"}" else data + b" ")
    promotion = {"stage": "production", "expected": None}
    for _ in range(2):
        stale = await client.post(f"/v1/models/{model_id}/promote", json=promotion)
        assert (stale.status_code, stale.json()["error"]["code"]) == (409, "base_changed")
    assert "is stale: the files of its base model 'small'" in stale.json()["error"]["message"]
    listed = {base["id"]: base for base in (await client.get("/v1/bases")).json()["data"]}
    assert listed["small"]["drifted_sha256"] is not None
    assert listed[BASE.base_id]["drifted_sha256"] is None
    checked = (await api.api.post("/v1/bases/small/check")).json()
    assert checked["drifted_sha256"] == listed["small"]["drifted_sha256"]
    assert ("path" in listed["small"], Path(checked["path"]).is_dir()) == (False, True)
    config.write_bytes(data)
    assert (await api.api.post("/v1/bases/small/check")).json()["drifted_sha256"] is None
    promoted = await client.post(f"/v1/models/{model_id}/promote", json=promotion)
    assert promoted.json()["stage"] == "production"


async def test_only_operators_check_base_models_and_only_those_at_hand(api: ControlPlane) -> None:
    client = await api.tenant()
    assert (await client.post(f"/v1/bases/{BASE.base_id}/check")).status_code == 403
    assert (await api.api.post("/v1/bases/none/check")).status_code == 404
    away = await api.api.post(f"/v1/bases/{BASE.base_id}/check")
    assert away.status_code == 400
    assert "cannot be read where the gateway runs" in away.json()["error"]["message"]
