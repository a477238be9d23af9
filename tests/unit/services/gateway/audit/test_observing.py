"""Audit records of requests through all routes: identifiers, never text of a tenant."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from schemas.audit import AuditEntry
from services.gateway.api import routes
from services.gateway.audit.observing import CONTENT, NO_ID, Observer
from services.gateway.web.deps import Principal
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.models.test_routes import version
from tunery.runtime.clock import SystemClock

SETTLE_S_MAX = 180


async def entries(api: ControlPlane, minimum: int = 1, **query: str) -> list[dict[str, Any]]:
    """Return audit entries by these parameters, the oldest first, once there are `minimum`."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while True:
            answer = await api.api.get("/v1/audit", params={**query, "limit": "1000"})
            assert answer.status_code == 200, answer.text
            listed: list[dict[str, Any]] = answer.json()["data"]
            if len(listed) >= minimum:
                return listed[::-1]
            await asyncio.sleep(0.05)


async def key_of(client: httpx.AsyncClient) -> str:
    key: str = (await client.get("/v1/keys/current")).json()["id"]
    return key


async def test_security_m7_reading_content_is_noted_with_who_what_and_when(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    file, key = await api.upload(client), await key_of(client)
    for _ in range(3):
        assert (await client.get(f"/v1/files/{file['id']}/content")).is_success
    created, read = await entries(api, 2, object_id=file["id"])
    assert (created["kind"], created["method"], created["route"]) == ("change", "POST", "/v1/files")
    assert (read["kind"], read["status"], read["code"]) == ("content", 200, None)
    assert read["route"] == "/v1/files/{file_id}/content"
    assert (read["tenant"], read["key_id"]) == (client.headers["x-tenant"], key)
    assert read["address"] == "127.0.0.1"
    assert read["request_id"].startswith("req_")


async def test_security_m7_operators_leave_what_they_did_and_to_whom(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    created = await api.api.post(f"/v1/tenants/{tenant}/keys", json={"name": "secret name"})
    await api.api.delete(f"/v1/tenants/{tenant}/keys/{created.json()['id']}")
    assert (await api.api.get("/v1/fine_tuning/jobs", params={"tenant": tenant})).is_success
    noted = await entries(api, 5, tenant=tenant, kind="operator")
    assert [(entry["method"], entry["route"], entry["status"]) for entry in noted] == [
        ("POST", "/v1/tenants", 201),
        ("POST", "/v1/tenants/{tenant}/keys", 201),
        ("POST", "/v1/tenants/{tenant}/keys", 201),
        ("DELETE", "/v1/tenants/{tenant}/keys/{key_id}", 200),
        ("GET", "/v1/fine_tuning/jobs", 200),
    ]
    assert noted[2]["object_ids"] == [tenant, created.json()["id"]]
    assert {entry["actor_tenant"] for entry in noted} == {"local"}
    assert {entry["key_id"] for entry in noted} == {"bootstrap"}


async def test_security_m7_refusals_are_noted_with_their_key_where_it_is_known(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    tenant, key = client.headers["x-tenant"], await key_of(client)
    assert (await client.post("/v1/tenants", json={"id": "x"})).status_code == 403
    assert (await client.delete("/v1/keys/current")).is_success
    assert (await client.get("/v1/files/file-" + "ab" * 12)).status_code == 401
    forbidden, revoked = await entries(api, 2, key_id=key, kind="refusal")
    assert (forbidden["route"], forbidden["code"]) == ("/v1/tenants", "insufficient_permissions")
    assert (revoked["status"], revoked["code"]) == (401, "invalid_api_key")
    assert (revoked["route"], revoked["tenant"]) == ("/v1/files/{file_id}", tenant)


async def test_security_m7_a_strangers_words_are_not_kept(api: ControlPlane) -> None:
    stranger = api.client("tun-wrong")
    assert (await stranger.get("/v1/files/Jane Doe")).status_code == 401
    assert (await stranger.request("JANE", "/v1/keys")).status_code == 401
    noted: list[dict[str, Any]] = []
    async with asyncio.timeout(SETTLE_S_MAX):
        while not {entry["method"] for entry in noted} >= {"GET", "other"}:
            await asyncio.sleep(0.05)
            noted = [entry for entry in await entries(api, kind="refusal") if not entry["key_id"]]
    assert all(entry["object_ids"] == [] for entry in noted)
    assert "Jane" not in str(noted)
    assert "JANE" not in str(noted)


async def test_security_m7_a_models_suffix_is_not_kept(api: ControlPlane) -> None:
    client = await api.tenant()
    model = await version(api, client, "janedoe")
    assert "janedoe" in model
    await client.get(f"/v1/models/{model}/adapter")
    noted = await entries(api, 1, tenant=client.headers["x-tenant"], kind="content")
    assert "janedoe" not in str(noted)
    base, tenant, end = model.split(":")[1], model.split(":")[2], model.split(":")[4]
    assert noted[-1]["object_ids"] == [f"ft:{base}:{tenant}::{end}"]


async def test_security_m7_a_key_shows_when_it_was_last_used(api: ControlPlane) -> None:
    client = await api.tenant()
    current = "/v1/keys/current"
    shown = await api.until(client, current, lambda key: key["last_used_at"] is not None)
    assert 0 <= api.deps.clock.now_ms() // 1_000 - shown["last_used_at"] <= SETTLE_S_MAX
    (listed,) = (await client.get("/v1/keys")).json()["data"]
    assert listed["last_used_at"] == shown["last_used_at"]
    unused = await api.api.post(
        f"/v1/tenants/{client.headers['x-tenant']}/keys", json={"name": "unused"}
    )
    assert unused.json()["last_used_at"] is None


def test_security_m7_every_content_route_exists() -> None:
    known = {route.path for route in routes().router.routes if isinstance(route, APIRoute)}
    assert known >= CONTENT


@pytest.mark.parametrize("words", ["content", "download", "adapter", "answers", "report", "logs"])
def test_security_m7_routes_that_read_content_are_listed(words: str) -> None:
    reading = {
        route.path
        for route in routes().router.routes
        if isinstance(route, APIRoute)
        and "GET" in (route.methods or ())
        and route.path.endswith(words)
    }
    assert reading <= CONTENT


class Kept:
    """Implements what `Observer` uses of `AuditNotes`."""

    name = "kept"

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    def note(self, entry: AuditEntry) -> None:
        self.entries.append(entry)

    async def run(self) -> None: ...

    async def ready(self) -> None: ...


def observed(
    method: str, path: str, status: int, body: bytes = b"", state: Mapping[str, Any] | None = None
) -> list[AuditEntry]:
    """What is noted of a request with a key, besides the use of the key."""
    kept = Kept()
    observe = Observer(kept, SystemClock(), routes().router.routes)
    principal = Principal("acme", "key_1", frozenset())
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "client": ("10.0.0.1", 5),
        "state": {"principal": principal, **(state or {})},
    }
    observe(scope, status, "req_1", body)
    use, *others = kept.entries
    assert (use.kind, use.tenant, use.key_id) == ("use", "acme", "key_1")
    return others


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/files", 200),
        ("GET", "/v1/fine_tuning/jobs/ftjob-1", 200),
        ("POST", "/v1/fine_tuning/jobs/estimate", 200),
        ("POST", "/v1/chat/completions", 200),
        ("POST", "/v1/nothing", 404),
    ],
)
def test_what_reads_no_content_and_changes_nothing_is_not_noted(
    method: str, path: str, status: int
) -> None:
    assert observed(method, path, status) == []


@pytest.mark.parametrize(
    ("path", "status", "ids"),
    [
        ("/v1/files/faq@2/content", 200, (NO_ID,)),  # a data set's name is a tenant's text
        ("/v1/files/Jane/content", 404, (NO_ID,)),
        ("/v1/models/tiny/files/model.safetensors", 200, ("tiny", NO_ID)),
        ("/v1/models/Jane/files/model.safetensors", 404, (NO_ID,)),
    ],
)
def test_names_that_may_be_text_are_not_kept(path: str, status: int, ids: tuple[str, ...]) -> None:
    (entry,) = observed("GET", path, status)
    assert entry.object_ids == ids


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"id": 5}', b'{"id": null}', b'{"error": "x"}', b"\xff"]
)
def test_a_body_without_an_id_is_noted_without_one(body: bytes) -> None:
    (entry,) = observed("POST", "/v1/files", 200, body)
    assert (entry.kind, entry.object_ids, entry.code) == ("change", (), None)
