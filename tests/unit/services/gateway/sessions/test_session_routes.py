"""Sessions and their commands for people, and for their own tenant alone."""

from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.sessions.sdk import new_sdk


async def test_sessions_and_their_commands_are_listed_for_their_tenant(api: ControlPlane) -> None:
    sdk, stranger = await new_sdk(api), await new_sdk(api)
    first, second = await sdk.model(), await sdk.model()
    listed = (await sdk.client.get("/v1/sessions")).json()["data"]
    assert [session["id"] for session in listed] == [second, first]
    assert (listed[0]["model"], listed[0]["rank"]) == (BASE.base_id, 4)
    assert (listed[0]["ends"], listed[0]["max_tokens"]) == (None, 100_000_000)
    assert (await sdk.client.get(f"/v1/sessions/{first}")).json() == listed[1]
    commands = (await sdk.client.get(f"/v1/sessions/{first}/commands")).json()["data"]
    assert [(each["kind"], each["seq"], each["answered_at"]) for each in commands] == [
        ("optim_step", 1, None)
    ]

    assert (await stranger.client.get("/v1/sessions")).json()["data"] == []
    for path in (first, f"{first}/commands"):
        assert (await stranger.client.get(f"/v1/sessions/{path}")).status_code == 404
    assert (await stranger.client.post(f"/v1/sessions/{first}/end")).status_code == 404


async def test_a_session_is_ended_once(api: ControlPlane) -> None:
    sdk = await new_sdk(api)
    session_id = await sdk.model()
    for _ in range(2):
        ended = await sdk.client.post(f"/v1/sessions/{session_id}/end")
        assert ended.json()["ends"] == "client"
    refused = await sdk.call("optim_step", {"model_id": session_id, "seq_id": 2, "adam_params": {}})
    assert refused.status_code == 409
