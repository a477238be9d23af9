"""Storage of a tenant and the limit of its plan, over HTTP."""

from typing import Any

import httpx
import pytest

from services.gateway.plan_limits import PLAN_LIMITS
from tests.unit.services.gateway.control_plane import ROW, ControlPlane

UPLOAD = {"bytes": 600, "filename": "a", "mime_type": "b", "purpose": "fine-tune"}


def allow(api: ControlPlane, monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Change limits of the plan "free"."""
    changed = PLAN_LIMITS["free"].model_copy(update=limits)
    monkeypatch.setattr(api.deps.settings, "plan_limits", {**PLAN_LIMITS, "free": changed})


async def send(client: httpx.AsyncClient, size: int) -> httpx.Response:
    body = {"file": ("rows.jsonl", ROW.ljust(size))}
    return await client.post("/v1/files", data={"purpose": "fine-tune"}, files=body)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 429, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == "quota_exceeded"
    return error


async def test_security_m1_bytes_beyond_the_plan_are_refused_and_not_kept(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(api, monkeypatch, storage_bytes_max=1_000)
    client = await api.tenant(plan="free")
    assert (await client.post("/v1/uploads", json=UPLOAD)).status_code == 200
    assert "`storage_bytes_max`" in error_of(await send(client, 401))["message"]
    prefix = f"t/{client.headers['x-tenant']}/files/"
    kept = [key for key in api.world.blobs.bodies if key.startswith(prefix)]
    assert kept == [], "a refused file leaves nothing"
    assert (await send(client, 400)).status_code == 200
    assert "1000 bytes" in error_of(await client.post("/v1/uploads", json=UPLOAD))["message"]
    other = await api.tenant(plan="free")
    assert (await send(other, 1_000)).status_code == 200


async def test_security_m1_files_and_uploads_have_limits_by_plan(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(api, monkeypatch, files_max=1, uploads_max=1)
    client = await api.tenant(plan="free")
    assert (await client.post("/v1/uploads", json=UPLOAD)).status_code == 200
    assert "`uploads_max`" in error_of(await client.post("/v1/uploads", json=UPLOAD))["message"]
    file = (await send(client, 100)).json()
    await api.validated(client, file["id"], accepted=False)
    assert "`files_max`" in error_of(await send(client, 100))["message"], "a failed file counts"
    assert (await client.delete(f"/v1/files/{file['id']}")).status_code == 200
    assert (await send(client, 100)).status_code == 200


async def test_security_m1_what_is_kept_is_shown_with_its_limits(api: ControlPlane) -> None:
    client = await api.tenant(plan="free")
    await send(client, 300)
    await client.post("/v1/uploads", json=UPLOAD)
    free = PLAN_LIMITS["free"]
    expected = {
        "object": "storage",
        "bytes": 900,
        "files": 1,
        "uploads": 1,
        "limits": {
            "bytes": free.storage_bytes_max,
            "files": free.files_max,
            "uploads": free.uploads_max,
        },
    }
    assert (await client.get("/v1/storage")).json() == expected
    named = {"tenant": client.headers["x-tenant"]}
    assert (await api.api.get("/v1/storage", params=named)).json() == expected
    assert (await (await api.tenant()).get("/v1/storage", params=named)).status_code == 403
