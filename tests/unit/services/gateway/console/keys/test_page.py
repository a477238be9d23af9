"""Keys: rights are shown, a secret once; who may not change keys is offered no change."""

from services.gateway.console.keys.page import ROLES, rights
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane


async def test_a_key_is_made_by_an_operator_and_revoked_by_its_tenant(api: ControlPlane) -> None:
    async with signed_in(console_of(api), key_of(api.api)) as browser:
        form = {"name": "watcher", "role": "Look only"}
        created = await browser.post("/console/keys", data=form, headers=OWN_SITE)
        assert created.status_code == 404  # the operators' own tenant is none of the API's
        # the installation's own key is in no list of the log, cannot be revoked, and sees the page
        listed = await browser.get("/console/keys")
        assert (listed.status_code, "Rights of members" in listed.text) == (200, True)
        assert "/keys/bootstrap/revoke" not in listed.text
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    body = {"name": "both", "scopes": ["read", "write", "admin"]}
    both = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()["key"]
    async with signed_in(console_of(api), both) as browser:
        created = await browser.post("/console/keys", data=form, headers=OWN_SITE)
        assert "it is not shown again" in created.text
        listed = await browser.get("/console/keys")
        assert "it is not shown again" not in listed.text
        assert "watcher" in listed.text
        assert "yours" in listed.text
    keys = {key["name"]: key for key in (await client.get("/v1/keys")).json()["data"]}
    assert keys["watcher"]["scopes"] == ["read"]
    revoking = f"/keys/{keys['watcher']['id']}/revoke"
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert revoking not in (await browser.get("/console/keys")).text
        assert (await browser.post(f"/console{revoking}", headers=OWN_SITE)).status_code == 403
    body = {"name": "manager", "scopes": ["read", "keys.write"]}
    manager = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()["key"]
    async with signed_in(console_of(api), manager) as browser:
        assert "New key" not in (await browser.get("/console/keys")).text
        assert revoking in (await browser.get("/console/keys")).text
        assert (await browser.post(f"/console{revoking}", headers=OWN_SITE)).status_code == 303
        assert "revoked" in (await browser.get("/console/keys")).text


async def test_a_new_secret_is_shown_to_who_may_not_list_keys(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    body = {"name": "maker", "scopes": ["admin", "write"]}
    maker = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()["key"]
    form = {"name": "watcher", "role": "Look only"}
    async with signed_in(console_of(api), maker) as browser:
        created = await browser.post("/console/keys", data=form, headers=OWN_SITE)
        assert created.status_code == 200, created.text
        assert "it is not shown again" in created.text
        assert "watcher" in created.text


async def test_a_key_of_another_tenant_is_not_found(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    key_id = (await client.get("/v1/keys/current")).json()["id"]
    async with signed_in(console_of(api), key_of(other)) as browser:
        answer = await browser.post(f"/console/keys/{key_id}/revoke", headers=OWN_SITE)
        assert answer.status_code == 404
        assert key_id not in (await browser.get("/console/keys")).text


def test_rights_are_listed_by_subject() -> None:
    watcher = rights(ROLES["Look only"])
    assert set(watcher.values()) == {"read"}
    member = rights(ROLES["Everything of the tenant"])
    assert member["jobs"] == "read, change"
    assert (member["keys"], member["budgets"], member["billing"]) == ("read", "read", "read")
    assert rights(ROLES["Manage keys"])["keys"] == "read, change"
    asking = rights(ROLES["Ask models"])
    assert {name for name, may in asking.items() if may} == {"chat", "models"}
    assert (asking["chat"], rights(["admin"])["budgets"]) == ("change", "change")


async def test_approvals_of_a_stage_are_set_by_who_may(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    body = {"name": "Ada <b>", "scopes": ["read", "models.write"]}
    ada = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()
    path = "/console/keys/approvals"
    form = {"stage": "production", "required": "1", "approver": ada["id"]}
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert "none is needed" in (await browser.get("/console/keys")).text
        assert (await browser.post(path, data=form, headers=OWN_SITE)).status_code == 303
        page = (await browser.get("/console/keys")).text
        assert '<td class="num">1</td><td><bdi>Ada &lt;b&gt;</bdi></td>' in page
        many = {**form, "required": "two"}
        assert (await browser.post(path, data=many, headers=OWN_SITE)).status_code == 400
    async with signed_in(console_of(api), ada["key"]) as browser:
        assert "Set the rule" not in (await browser.get("/console/keys")).text
        assert (await browser.post(path, data=form, headers=OWN_SITE)).status_code == 403
