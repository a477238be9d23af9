"""Sessions: the list, what was asked of one, why it waits, and its end."""

from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.sessions.sdk import new_sdk
from tunery.work.session import StepAnswer


async def test_a_session_is_shown_with_its_commands_and_ended(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    path = f"/console/sessions/{session_id}"
    async with signed_in(console_of(api), key_of(sdk.client)) as browser:
        assert f'href="{path}"' in (await browser.get("/console/sessions")).text
        page = (await browser.get(path)).text
        assert "Why it waits" in page
        assert '<span class="state waits">waits</span>' in page
        (command,) = (await sdk.client.get(f"/v1/sessions/{session_id}/commands")).json()["data"]
        await sdk.answer(session_id, command["id"], StepAnswer(grad_norm=1.0))
        await api.until(
            sdk.client, f"/v1/sessions/{session_id}/commands", lambda c: c["data"][0]["answered_at"]
        )
        page = (await browser.get(path)).text
        assert '<span class="state good">answered</span>' in page
        assert "End session" in page
        assert (await browser.post(f"{path}/end", headers=OWN_SITE)).status_code == 303
        assert "It was ended by a request." in (await browser.get(path)).text
    assert (await sdk.client.get(f"/v1/sessions/{session_id}")).json()["ends"] == "client"


async def test_a_key_that_may_only_read_ends_no_session(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    body = {"name": "watcher", "scopes": ["read"]}
    key = await api.api.post(f"/v1/tenants/{sdk.tenant}/keys", json=body)
    async with signed_in(console_of(api), key.json()["key"]) as browser:
        page = await browser.get(f"/console/sessions/{session_id}")
        assert (page.status_code, "End session" in page.text) == (200, False)
        path = f"/console/sessions/{session_id}/end"
        assert (await browser.post(path, headers=OWN_SITE)).status_code == 403
    assert (await sdk.client.get(f"/v1/sessions/{session_id}")).json()["ends"] is None
