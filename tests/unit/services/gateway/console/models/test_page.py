"""Models: lineage, promotion and roll-back with what the page has shown, files."""

import httpx

from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.models.test_release_routes import second_key
from tests.unit.services.gateway.models.test_routes import version


async def stage_of(client: httpx.AsyncClient, model_id: str) -> str:
    return str((await client.get(f"/v1/models/{model_id}")).json()["stage"])


async def shown(browser: httpx.AsyncClient, model_id: str) -> str:
    return (await browser.get(f"/console/models/{model_id}")).text


async def test_a_version_is_promoted_replaced_and_rolled_back(api: ControlPlane) -> None:
    client = await api.tenant()
    first, second = await version(api, client, "a"), await version(api, client, "b")
    async with signed_in(console_of(api), key_of(client)) as browser:
        listed = await browser.get("/console/models")
        assert first in listed.text
        assert "tiny-llama" in listed.text
        page = await browser.get(f"/console/models/{first}")
        assert "ftjob-a" in page.text
        assert "Promote to production" in page.text
        path, form = f"/console/models/{first}/promote", {"stage": "production", "expected": ""}
        answer = await browser.post(path, data=form, headers=OWN_SITE)
        assert answer.status_code == 303
        assert await stage_of(client, first) == "production"
        # a page that is older than another promotion changes nothing
        stale = await browser.post(f"/console/models/{second}/promote", data=form, headers=OWN_SITE)
        assert stale.status_code == 409
        newer = {"stage": "production", "expected": first}
        await browser.post(f"/console/models/{second}/promote", data=newer, headers=OWN_SITE)
        assert await stage_of(client, second) == "production"
        back = {"stage": "production"}
        assert "Roll back production" in (await shown(browser, second))
        await browser.post(f"/console/models/{second}/rollback", data=back, headers=OWN_SITE)
        assert await stage_of(client, first) == "production"
        assert "none to roll back to" in (alone := await shown(browser, first))
        assert "Roll back" not in alone
        history = await browser.get(f"/console/models/{first}")
        assert "rollback" in history.text
        part = await browser.get(f"/console/models/{first}/files", headers={"hx-request": "true"})
        assert "<html" not in part.text
        assert 'href="/v1/downloads/' in part.text
        unknown = await browser.post(f"/console/models/{first}/delete", headers=OWN_SITE)
        assert unknown.status_code == 404


async def test_an_approval_needs_another_key(api: ControlPlane) -> None:
    client = await api.tenant()
    other, _ = await second_key(api, client)
    model_id = await version(api, client, "one")
    await client.post("/v1/approval_rules", json={"stage": "production", "required": 1})
    form, path = {"stage": "production"}, f"/console/models/{model_id}"
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert "needs 1 approval<" in (await browser.get(path)).text
        refused = await browser.post(f"{path}/promote", data=form, headers=OWN_SITE)
        assert refused.status_code == 409
    async with signed_in(console_of(api), key_of(other)) as browser:
        await browser.post(f"{path}/approve", data=form, headers=OWN_SITE)
    async with signed_in(console_of(api), key_of(client)) as browser:
        promoted = await browser.post(f"{path}/promote", data=form, headers=OWN_SITE)
        assert promoted.status_code == 303, promoted.text


async def test_who_may_only_read_is_offered_no_change(api: ControlPlane) -> None:
    client = await api.tenant()
    model_id, tenant = await version(api, client, "one"), client.headers["x-tenant"]
    body = {"name": "r", "scopes": ["read"]}
    created = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()
    async with signed_in(console_of(api), created["key"]) as browser:
        page = await browser.get(f"/console/models/{model_id}")
        assert "Promote" not in page.text
        form = {"stage": "staging"}
        path = f"/console/models/{model_id}/promote"
        assert (await browser.post(path, data=form, headers=OWN_SITE)).status_code == 403
    stranger = await api.tenant()
    async with signed_in(console_of(api), key_of(stranger)) as browser:
        for path in ("", "/files"):
            theirs = await browser.get(f"/console/models/{model_id}{path}")
            assert theirs.status_code == 404
        assert (await browser.get("/console/models/tiny-llama")).status_code == 404
