"""Requests that journals keep for ever are limited by the plan; those of operators are not."""

from typing import Any

import httpx
import pytest

from schemas.topics import DATASET
from services.gateway.plan_limits import PLAN_LIMITS
from tests.unit.services.gateway.control_plane import ROW, ControlPlane

pytestmark = pytest.mark.security


UPLOAD = {"bytes": 600, "filename": "a", "mime_type": "b", "purpose": "fine-tune"}


def allow(api: ControlPlane, monkeypatch: pytest.MonkeyPatch, limit: int, **others: int) -> None:
    limits = {"records_per_hour_max": limit, **others}
    changed = PLAN_LIMITS["free"].model_copy(update=limits)
    monkeypatch.setattr(api.deps.settings, "plan_limits", {**PLAN_LIMITS, "free": changed})


def error_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 429, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


def recorded(api: ControlPlane) -> int:
    """Records of journal and commands of files."""
    topics = (api.world.log.topics[topic.name] for topic in (DATASET.commands, DATASET.journal))
    return sum(len(partition.records) for topic in topics for partition in topic)


async def upload(client: httpx.AsyncClient) -> httpx.Response:
    body = {"file": ("rows.jsonl", ROW)}
    return await client.post("/v1/files", data={"purpose": "fine-tune"}, files=body)


async def test_security_m1_records_beyond_the_plan_are_refused_before_they_are_written(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(api, monkeypatch, 3, uploads_max=1)
    client = await api.tenant(plan="free")
    assert (await upload(client)).status_code == 200
    assert (await client.post("/v1/uploads", json=UPLOAD)).status_code == 200
    decided = error_of(await client.post("/v1/uploads", json=UPLOAD))
    assert "`uploads_max`" in decided["message"], "it is on the log"
    before = recorded(api)
    refused = await upload(client)
    error = error_of(refused)
    assert (error["code"], refused.headers["x-should-retry"]) == ("quota_exceeded", "true")
    assert "`records_per_hour_max`" in error["message"]
    assert 0 < int(refused.headers["retry-after"]) <= 1_200
    assert recorded(api) == before
    assert (await client.get("/v1/files")).status_code == 200, "reading is not counted"


async def test_security_m1_a_tenant_leaves_others_and_operators_their_records(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(api, monkeypatch, 1)
    client, other = await api.tenant(plan="free"), await api.tenant(plan="free")
    assert (await upload(client)).status_code == 200
    assert error_of(await upload(client))
    assert (await upload(other)).status_code == 200
    tenant = client.headers["x-tenant"]
    for _ in range(3):
        created = await api.api.post(f"/v1/tenants/{tenant}/keys", json={})
        assert created.status_code in {200, 201}, created.text
