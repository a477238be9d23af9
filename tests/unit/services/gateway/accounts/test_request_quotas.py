"""Requests are limited by the plan, for all keys of a tenant; those of operators are not."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest

from schemas.topics import DATASET
from services.gateway.accounts import request_quotas
from services.gateway.accounts.auth import digest
from services.gateway.accounts.request_quotas import LIMIT_S, RecordQuota, RequestQuota
from services.gateway.plan_limits import PLAN_LIMITS
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.edge import PER_MINUTE
from tests.unit.services.gateway.control_plane import ROW, ControlPlane

pytestmark = pytest.mark.security


UPLOAD = {"bytes": 600, "filename": "a", "mime_type": "b", "purpose": "fine-tune"}


def allow(api: ControlPlane, monkeypatch: pytest.MonkeyPatch, limit: int, **others: int) -> None:
    limits = {"records_per_minute_max": limit, **others}
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
    monkeypatch.setattr(api.world.blobs, "upload", None)  # what is refused is not received
    refused = await upload(client)
    error = error_of(refused)
    assert (error["code"], refused.headers["x-should-retry"]) == ("quota_exceeded", "true")
    assert "`records_per_minute_max`" in error["message"]
    assert 0 < int(refused.headers["retry-after"]) <= 20
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


async def test_security_m1_a_refused_record_is_refused_again_from_memory(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refused upload cost a query and a question to Valkey."""
    allow(api, monkeypatch, 2)
    tenant = (await api.tenant(plan="free")).headers["x-tenant"]
    clock, deps = Clock(), cast(Deps, api.deps)
    quota, asked = RecordQuota(clock), []
    take = api.deps.rates.take

    async def count(name: str, limit: int) -> Any:
        asked.append(name)
        return await take(name, limit)

    monkeypatch.setattr(api.deps.rates, "take", count)
    for _ in range(2):
        await quota.count(deps, tenant)
    for _ in range(9):
        with pytest.raises(ApiError, match="`records_per_minute_max`") as refused:
            await quota.count(deps, tenant)
        assert 1 <= int((refused.value.headers or {})["retry-after"]) <= 30
    assert len(asked) == 3
    clock.now_s += LIMIT_S
    with pytest.raises(ApiError):
        await quota.count(deps, tenant)
    assert len(asked) == 4, "another plan counts soon"


@dataclass
class Clock:
    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s


async def allowed(quota: RequestQuota, deps: Deps, tenant: str, tries: int) -> int:
    """How many of some requests at the same moment are not answered 429."""
    passed = 0
    for _ in range(tries):
        with suppress(ApiError):
            await quota.count(deps, tenant)
            passed += 1
    return passed


async def test_security_m1_a_tenant_with_many_keys_has_the_limit_of_its_plan(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key had a limit of its own, so that ten keys were ten times as many requests."""
    allow(api, monkeypatch, 50, requests_per_minute_max=18)
    client, other = await api.tenant(plan="free"), await api.tenant(plan="free")
    tenant = client.headers["x-tenant"]
    created = await api.api.post(f"/v1/tenants/{tenant}/keys", json={})
    second = api.client(created.json()["key"])
    answers = [await key.get("/v1/files") for _ in range(2) for key in (client, second)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    error = error_of(answers[-1])
    assert error["code"] == "rate_limit_exceeded"
    assert "18 requests a minute" in error["message"]
    assert "`requests_per_minute_max`" in error["message"]
    assert 0 < int(answers[-1].headers["retry-after-ms"]) <= 3_400
    assert (await other.get("/v1/files")).status_code == 200


async def test_security_m1_a_refused_key_is_refused_again_without_being_looked_up(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refused request cost a query, which others waited for."""
    allow(api, monkeypatch, 50, requests_per_minute_max=6)
    client = await api.tenant(plan="free")
    looked_up: list[Any] = []
    first = api.deps.views.first

    async def count(table: Any, where: Any) -> Any:
        looked_up.append(where)
        return await first(table, where)

    assert (await client.get("/v1/files")).status_code == 200
    monkeypatch.setattr(api.deps.views, "first", count)
    assert error_of(await client.get("/v1/files"))["code"] == "rate_limit_exceeded"
    assert looked_up.pop() == {"sha256": digest(client.headers["authorization"].split()[1])}
    for _ in range(PER_MINUTE + 1):
        refused = await client.get("/v1/files")
        assert error_of(refused)["code"] == "rate_limit_exceeded"
    assert looked_up == []
    strange = api.client("tun-" + "x" * 43)  # of the same address: it has shown no wrong key yet
    assert (await strange.get("/v1/files")).status_code == 401


async def test_security_m1_a_refused_key_is_looked_up_when_something_is_left(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was revoked meanwhile is refused for that, and what it took is taken once."""
    allow(api, monkeypatch, 50, requests_per_minute_max=12)
    tenant = (await api.tenant(plan="free")).headers["x-tenant"]
    clock, deps = Clock(), cast(Deps, api.deps)
    monkeypatch.setattr(request_quotas, "RequestQuota", lambda: RequestQuota(clock))
    caller = Principal(tenant, "key", frozenset())
    looked_up: list[str | None] = []

    async def authenticate(_: Deps, authorization: str | None) -> Principal:
        looked_up.append(authorization)
        return caller

    identify = request_quotas.counting(authenticate)
    for expected in (2, 1):
        passed = 0
        for _ in range(10):
            with suppress(ApiError):
                assert await identify(deps, "a") == caller
                passed += 1
        assert passed == expected
        clock.now_s += 5.1
        looked_up.clear()
    clock.now_s += LIMIT_S
    assert await identify(deps, "a") == caller
    assert looked_up == ["a"]


async def test_security_m1_requests_refill_evenly_and_a_new_plan_counts_soon(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(api, monkeypatch, 50, requests_per_minute_max=60)
    tenant = (await api.tenant(plan="free")).headers["x-tenant"]
    clock, deps = Clock(), cast(Deps, api.deps)
    quota = RequestQuota(clock)
    assert await allowed(quota, deps, tenant, 20) == 10
    clock.now_s += 3
    assert await allowed(quota, deps, tenant, 20) == 3
    allow(api, monkeypatch, 50, requests_per_minute_max=600)
    assert await allowed(quota, deps, tenant, 20) == 0
    clock.now_s += LIMIT_S
    assert await allowed(quota, deps, tenant, 200) > 40
