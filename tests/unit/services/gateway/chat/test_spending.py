"""Budgets and caps bind answers where these have a price."""

from typing import Any

import httpx
import pytest

from schemas.answers import CountAnswers
from schemas.topics import ACCOUNT
from tests.unit.services.gateway.billing.test_answer_use_routes import use
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine
from tests.unit.services.gateway.control_plane import BASE, ControlPlane

__all__ = ["engine"]
SCOPES = ["read", "write", "chat.write", "budgets.write"]
BOOK = {
    "version": "2025-12-priced-answers",
    "currency": "EUR",
    "effective_from": "2025-12-01",
    "gpu_hour_micro": {"premium": 3_500_000, "standard": 2_600_000, "free": 0},
    "answers": {
        "prompt_micro_per_million": 2_000_000,
        "cached_micro_per_million": 1_000_000,
        "completion_micro_per_million": 3_000_000,
    },
}
COST = 75_000  # of `use(…, 10_000)`


async def asking(
    api: ControlPlane, terms: dict[str, Any], **key: Any
) -> tuple[httpx.AsyncClient, str, str]:
    """A client of a new tenant, the tenant, and the key's id."""
    tenant = (await api.tenant(**terms)).headers["x-tenant"]
    body = {"scopes": SCOPES, **key}
    created = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()
    return api.client(created["key"], tenant), tenant, created["id"]


async def priced(api: ControlPlane) -> dict[str, Any]:
    imported = await api.api.post("/v1/prices", json=BOOK)
    assert imported.status_code in (200, 201, 409), imported.text
    return {"price_version": BOOK["version"]}


async def answer(client: httpx.AsyncClient, route: str = "chat/completions") -> httpx.Response:
    said = {"chat/completions": {"messages": [{"role": "user", "content": "Hi"}]}}
    body = said.get(route, {"prompt" if route == "completions" else "input": "Hi"})
    return await client.post(f"/v1/{route}", json={"model": BASE.base_id, **body})


async def count(api: ControlPlane, tenant: str, key_id: str) -> None:
    counted = CountAnswers(uses=(use("a", 10_000, key_id),))
    await api.deps.commands.decide(ACCOUNT, tenant, counted)


async def test_usage_has_the_price_of_an_answer(api: ControlPlane, engine: ScriptedEngine) -> None:
    client, _, _ = await asking(api, await priced(api))
    for route in ("chat/completions", "completions", "responses"):
        usage = (await answer(client, route)).json()["usage"]
        assert usage["price"] == {"amount_micro": 5 * 2 + 2 * 3, "currency": "EUR"}
    unpriced, _, _ = await asking(api, {})
    assert "price" not in (await answer(unpriced)).json()["usage"]


@pytest.mark.parametrize("whose", ["tenant", "key"])
async def test_a_budget_that_answers_reach_refuses_the_next(
    api: ControlPlane, engine: ScriptedEngine, whose: str
) -> None:
    client, tenant, key_id = await asking(api, await priced(api))
    limit: dict[str, Any] = {"max_amount_micro": COST + 1}
    if whose == "key":
        limit["key_id"] = key_id
        await count(api, tenant, "key_of_others")
    assert (await client.post("/v1/budgets", json=limit)).status_code == 200
    await count(api, tenant, key_id)
    path = f"/v1/budgets/{limit.get('key_id', 'tenant')}"
    await api.until(client, path, lambda budget: budget["used_micro"] == COST)
    assert (await answer(client)).status_code == 200
    limit["max_amount_micro"] = COST
    assert (await client.post("/v1/budgets", json=limit)).status_code == 200
    asked = len(engine.asked)
    for route in ("chat/completions", "completions", "responses"):
        refused = await answer(client, route)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")
        assert refused.json()["error"]["type"] == "insufficient_quota"
        assert refused.headers["x-should-retry"] == "false"
    assert len(engine.asked) == asked


async def test_budgets_say_what_answers_have_used_and_when_they_reach_a_share(
    api: ControlPlane,
) -> None:
    client, tenant, key_id = await asking(api, await priced(api))
    limit = {"max_amount_micro": 2 * COST - 1}
    assert (await client.post("/v1/budgets", json=limit)).status_code == 200
    await count(api, tenant, key_id)
    budget = await api.until(client, "/v1/budgets/tenant", lambda row: row["used_micro"] > 0)
    assert (budget["used_micro"], budget["left_micro"]) == (COST, COST - 1)
    assert (budget["reached_percent"], budget["used_gpu_ms"]) == (50, 0)


async def test_the_cap_of_a_key_counts_its_answers(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client, tenant, key_id = await asking(api, await priced(api), spend_cap_micro=COST)
    assert (await answer(client)).status_code == 200
    await count(api, tenant, key_id)
    refused = await answer(client)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")
    assert "cap of this API key" in refused.json()["error"]["message"]


async def test_answers_without_a_price_reach_no_budget(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client, tenant, key_id = await asking(api, {})
    assert (await client.post("/v1/budgets", json={"max_amount_micro": 1})).status_code == 200
    await count(api, tenant, key_id)
    assert (await answer(client)).status_code == 200
