"""A node is invited by an operator, and gets its keys for the token, once."""

import asyncio
import hashlib
from base64 import b64decode
from typing import Any

import httpx
import pytest

from schemas.enrolment import SEALED_SETTINGS_MAX
from schemas.topics import POOL
from services.gateway.web.edge import PER_MINUTE
from simulator.control_plane.samples import node
from tests.unit.services.gateway.audit.test_observing import SETTLE_S_MAX, entries
from tests.unit.services.gateway.control_plane import COMMAND_SECRET, ControlPlane
from tests.unit.services.gateway.jobs.test_node_routes import known
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.node_settings import seal_settings
from tunery.platform.seal.boxes import open_box, public_key_of
from tunery.runtime.bus.signing import read_keys

pytestmark = pytest.mark.security

ADDRESS = "198.51.100.7"
PRIVATE, OTHER = b"p" * 32, b"o" * 32


def stranger(api: ControlPlane, address: str = ADDRESS) -> httpx.AsyncClient:
    """A client without a key."""
    inner: Any = api.api._transport
    transport = httpx.ASGITransport(app=inner.app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://api")


async def invite(api: ControlPlane, node_id: str, **body: Any) -> dict[str, Any]:
    answer = await api.api.post(f"/v1/nodes/{node_id}/invite", json=body)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def enrol(
    client: httpx.AsyncClient, node_id: str, token: str, private: bytes = PRIVATE
) -> httpx.Response:
    body = {"token": token, "public_key": public_key_of(private).hex()}
    return await client.post(f"/v1/nodes/{node_id}/enrol", json=body)


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["message"]


def written(api: ControlPlane) -> bytes:
    """All records of the stream `pool`."""
    topics = (api.world.log.topics[topic.name] for topic in (POOL.commands, POOL.journal))
    return b"".join(
        record.value for topic in topics for partition in topic for record in partition.records
    )


async def test_a_token_gives_a_node_its_keys_and_is_kept_nowhere(api: ControlPlane) -> None:
    invited = await invite(api, "gpu-1", expires_in_seconds=60)
    assert (invited["id"], invited["pool"], invited["enrolled_at"]) == ("gpu-1", "default", None)
    assert invited["expires_at"] - invited["invited_at"] == 60
    async with stranger(api) as client:
        for _ in range(2):
            answer = await enrol(client, "gpu-1", invited["token"])
            assert answer.status_code == 200, answer.text
            box = b64decode(answer.json()["sealed_keys"])
            keys = open_box(PRIVATE, box).decode()
            assert read_keys(keys) == keys_of(COMMAND_SECRET, "node.gpu-1")
        used = problem(await enrol(client, "gpu-1", invited["token"], OTHER))
        assert used[:2] == (401, "invitation_refused")
        assert "used before" in used[2]
    (shown,) = (await api.api.get("/v1/node_invitations")).json()["data"]
    assert (shown["id"], shown["invited_by"], shown["key_number"]) == ("gpu-1", "bootstrap", 1)
    assert shown["enrolled_at"] is not None
    assert "token" not in shown


async def test_settings_that_are_sealed_come_with_the_keys_of_their_invitation_alone(
    api: ControlPlane,
) -> None:
    sealed = seal_settings("gpu-6", "half", {"TUNERY_S3_SECRET_KEY": "s"})
    first = await invite(api, "gpu-6", sealed_settings=sealed)
    assert "sealed_settings" not in first
    async with stranger(api) as client:
        assert (await enrol(client, "gpu-6", f"{first['token']}.half")).status_code == 401
        answers = [await enrol(client, "gpu-6", first["token"]) for _ in range(2)]
        assert [answer.json()["sealed_settings"] for answer in answers] == [sealed, sealed]
        second = await invite(api, "gpu-6")
        answer = await enrol(client, "gpu-6", second["token"], OTHER)
        assert answer.json()["sealed_settings"] is None
    for wrong in ("", "no Base64!", "A" * (SEALED_SETTINGS_MAX + 1)):
        answer = await api.api.post("/v1/nodes/gpu-6/invite", json={"sealed_settings": wrong})
        assert answer.status_code == 400, wrong[:20]


async def test_a_token_for_several_gives_each_node_keys_of_its_own(api: ControlPlane) -> None:
    sealed = seal_settings("spot", "half", {"TUNERY_S3_SECRET_KEY": "s"})
    invited = await invite(api, "spot", uses=2, sealed_settings=sealed)
    assert (invited["uses"], invited["used"]) == (2, 0)
    async with stranger(api) as client:
        for node_id, private in (("spot-eu-1", PRIVATE), ("spot-2", OTHER), ("spot-2", OTHER)):
            answer = await enrol(client, node_id, invited["token"], private)
            assert answer.status_code == 200, answer.text
            keys = open_box(private, b64decode(answer.json()["sealed_keys"])).decode()
            assert read_keys(keys).sender == f"node.{node_id}"
            assert answer.json()["sealed_settings"] == sealed
            assert answer.json()["invitation"] == "spot"
        for node_id, words in (
            ("spot-3", "was used by 2 nodes"),
            ("spot", "no invitation with this token"),
            ("gpu-spot-1", "no invitation with this token"),
        ):
            refused = problem(await enrol(client, node_id, invited["token"]))
            assert refused[:2] == (401, "invitation_refused")
            assert words in refused[2]
    listed = (await api.api.get("/v1/node_invitations")).json()["data"]
    shown = {each["id"]: (each["uses"], each["used"], each["invitation"]) for each in listed}
    assert shown["spot"] == (2, 2, None)
    assert shown["spot-2"] == (None, 0, "spot")


async def test_a_revoked_token_gives_no_keys(api: ControlPlane) -> None:
    invited = await invite(api, "brief", uses=9)
    revoked = await api.api.post("/v1/nodes/brief/revoke")
    assert revoked.status_code == 200, revoked.text
    assert revoked.json()["expires_at"] <= invited["expires_at"]
    async with stranger(api) as client:
        refused = problem(await enrol(client, "brief-1", invited["token"]))
        assert refused[0] == 401
        assert "has ended" in refused[2]
        assert (await client.post("/v1/nodes/brief/revoke")).status_code == 401
    assert (await api.api.post("/v1/nodes/nobody/revoke")).status_code == 404
    tenant = await api.tenant()
    assert (await tenant.post("/v1/nodes/brief/revoke")).status_code == 403


async def test_what_is_no_valid_token_of_the_node_is_refused_and_noted(api: ControlPlane) -> None:
    first = await invite(api, "gpu-2")
    second = await invite(api, "gpu-2")
    other = await invite(api, "gpu-3")
    async with stranger(api) as client:
        for node_id, token in (
            ("gpu-2", first["token"]),
            ("gpu-2", other["token"]),
            ("gpu-2", "wrong"),
            ("never-invited", second["token"]),
        ):
            refused = problem(await enrol(client, node_id, token))
            assert refused[:2] == (401, "invitation_refused"), token
            assert "no invitation with this token" in refused[2]
        assert (await enrol(client, "gpu-2", second["token"])).status_code == 200
        bad = await client.post("/v1/nodes/gpu-2/enrol", json={"token": "t", "public_key": "x"})
        assert bad.status_code == 400
    route = "/v1/nodes/{node_id}/enrol"
    kinds = set[tuple[str, int, str | None]]()
    async with asyncio.timeout(SETTLE_S_MAX):
        while len(kinds) < 2:
            kinds = {
                (entry["kind"], entry["status"], entry["code"])
                for entry in await entries(api)
                if (entry["route"], entry["address"]) == (route, ADDRESS)
            }
            await asyncio.sleep(0.05)
    assert kinds == {("refusal", 401, "invitation_refused"), ("change", 200, None)}


async def test_a_node_whose_keys_were_withdrawn_gets_the_next(api: ControlPlane) -> None:
    await api.runtime.sender.send(POOL, "default", "", node("back", "back-1", 8))
    await known(api, "up", "back")
    await api.api.post("/v1/nodes/back/withdraw")
    invited = await invite(api, "back")
    async with stranger(api) as client:
        answer = await enrol(client, "back", invited["token"])
    keys = read_keys(open_box(PRIVATE, b64decode(answer.json()["sealed_keys"])).decode())
    assert keys.sender == "node.back#2"
    assert (await api.api.delete("/v1/nodes/back")).is_success


async def test_keys_of_a_node_that_never_registered_are_withdrawn(api: ControlPlane) -> None:
    invited = await invite(api, "lurking")
    assert (await api.api.post("/v1/nodes/lurking/withdraw")).status_code == 404, "it has no keys"
    async with stranger(api) as client:
        assert (await enrol(client, "lurking", invited["token"])).status_code == 200
        shown = (await api.api.post("/v1/nodes/lurking/withdraw")).json()
        assert (shown["object"], shown["keys_withdrawn"]) == ("node.invitation", 1)
        again = await invite(api, "lurking")
        answer = await enrol(client, "lurking", again["token"])
    keys = read_keys(open_box(PRIVATE, b64decode(answer.json()["sealed_keys"])).decode())
    assert keys.sender == "node.lurking#2"


async def test_only_operators_invite_and_what_they_ask_is_checked(api: ControlPlane) -> None:
    tenant = await api.tenant()
    assert (await tenant.post("/v1/nodes/x/invite", json={})).status_code == 403
    assert (await tenant.get("/v1/node_invitations")).status_code == 403
    async with stranger(api) as client:
        assert (await client.post("/v1/nodes/x/invite", json={})).status_code == 401
    long = await api.api.post("/v1/nodes/x/invite", json={"expires_in_seconds": 10**9})
    assert long.status_code == 400
    named = await api.api.post("/v1/nodes/a%20b/invite", json={})
    assert problem(named)[:2] == (400, "malformed_command")


async def test_security_l2_tries_of_one_address_are_limited(api: ControlPlane) -> None:
    async with stranger(api, "203.0.113.77") as client:
        statuses: list[int] = []
        while 429 not in statuses and len(statuses) < 2 * PER_MINUTE:  # the limit refills meanwhile
            statuses.append((await enrol(client, "x", "wrong")).status_code)
    assert (statuses[0], statuses[-1]) == (401, 429)


async def test_the_token_is_on_no_log(api: ControlPlane) -> None:
    invited = await invite(api, "gpu-4")
    async with stranger(api) as client:
        assert (await enrol(client, "gpu-4", invited["token"])).status_code == 200
    values = written(api)
    assert invited["token"].encode() not in values
    assert hashlib.sha256(invited["token"].encode()).hexdigest().encode() in values
    own = keys_of(COMMAND_SECRET, "node.gpu-4").own
    assert not any(key in values for key in own.values())
