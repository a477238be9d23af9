"""`GET /v1/usage/completions`: tokens of answers, by day, model and key."""

from pathlib import Path
from typing import Any

import httpx

from schemas.answers import AnswerUse, CountAnswers
from schemas.topics import ACCOUNT
from schemas.units import HOUR_MS
from services.engine.counting import AnswerCounts
from services.engine.meter import AnswerMeter
from tests.unit.services.gateway.control_plane import ControlPlane
from tunery.work.engine import Asker, Spent

URL = "/v1/usage/completions"


def use(model: str, tokens: int, key_id: str = "key_1") -> AnswerUse:
    return AnswerUse(
        key_id=key_id,
        model=model,
        requests=1,
        prompt_tokens=tokens,
        cached_tokens=tokens // 2,
        completion_tokens=2 * tokens,
        engine_ms=5,
    )


async def results(api: ControlPlane, client: httpx.AsyncClient, **query: Any) -> list[Any]:
    """Sums of the last two days."""
    start_time = api.deps.clock.now_ms() // 1_000 - 86_400
    answer = await client.get(URL, params={"start_time": start_time, **query})
    assert answer.status_code == 200, answer.text
    return [result for bucket in answer.json()["data"] for result in bucket["results"]]


async def test_tokens_are_summed_by_model_and_key(api: ControlPlane) -> None:
    client = await api.tenant()
    other = await api.tenant()
    tenant = client.headers["x-tenant"]
    for uses in ((use("a", 10), use("b", 1)), (use("a", 100, "key_2"),)):
        await api.deps.commands.decide(ACCOUNT, tenant, CountAnswers(uses=uses))
    (total,) = await results(api, client)
    assert (total["input_tokens"], total["output_tokens"], total["input_cached_tokens"]) == (
        111,
        222,
        55,
    )
    assert (total["num_model_requests"], total["engine_ms"], total["model"]) == (3, 15, None)
    grouped = await results(api, client, group_by="model,key")
    assert [
        (result["model"], result["api_key_id"], result["input_tokens"]) for result in grouped
    ] == [("a", "key_1", 10), ("a", "key_2", 100), ("b", "key_1", 1)]
    assert await results(api, other) == []


async def test_answers_have_no_jobs_to_group_by(api: ControlPlane) -> None:
    client = await api.tenant()
    for group in ("job", "metadata[team]"):
        refused = await client.get(URL, params={"group_by": group})
        assert refused.status_code == 400
        assert "day, model, key" in refused.json()["error"]["message"]


async def test_buckets_have_pages(api: ControlPlane) -> None:
    client = await api.tenant()
    hour = api.deps.clock.now_ms() // HOUR_MS
    query: dict[str, Any] = {"start_time": (hour - 2) * 3_600, "bucket_width": "1h", "limit": 2}
    first = (await client.get(URL, params=query)).json()
    assert (len(first["data"]), first["has_more"]) == (2, True)
    second = (await client.get(URL, params={**query, "page": first["next_page"]})).json()
    assert (len(second["data"]), second["has_more"], second["next_page"]) == (1, False, None)


async def test_what_an_engine_has_counted_is_shown_once(api: ControlPlane, tmp_path: Path) -> None:
    """Through the real decision: sent twice, as after a doubt."""
    client = await api.tenant()
    meter = AnswerMeter(tmp_path)
    meter.begin(Asker(client.headers["x-tenant"], "key_1", "a")).note(Spent(7, 3, 2))
    meter.close_file()
    (counted,) = meter.closed_files()
    content = counted.read_bytes()
    counts = AnswerCounts(meter, api.runtime.sender, api.runtime.clock)
    await counts.send()
    counted.write_bytes(content)
    await counts.send()
    await api.deps.commands.decide(ACCOUNT, client.headers["x-tenant"], CountAnswers(uses=()))
    (result,) = await results(api, client)
    assert (result["input_tokens"], result["output_tokens"]) == (7, 2)


async def test_answers_are_on_the_invoice_where_the_tenants_book_has_a_price(
    api: ControlPlane,
) -> None:
    book = {
        "version": "2026-01-answers",
        "currency": "EUR",
        "effective_from": "2026-01-01",
        "gpu_hour_micro": {"premium": 3_500_000, "standard": 2_600_000, "free": 0},
        "answers": {
            "prompt_micro_per_million": 2_000_000,
            "cached_micro_per_million": 1_000_000,
            "completion_micro_per_million": 3_000_000,
        },
    }
    imported = await api.api.post("/v1/prices", json=book)
    assert imported.status_code == 201, imported.text
    priced, plain = await api.tenant(price_version=book["version"]), await api.tenant()
    for client in (priced, plain):
        tenant = client.headers["x-tenant"]
        await api.deps.commands.decide(ACCOUNT, tenant, CountAnswers(uses=(use("a", 10_000),)))
    (draft,) = (await priced.get("/v1/invoices")).json()["data"]
    lines = (await priced.get(f"/v1/invoices/{draft['id']}/lines")).json()["data"]
    assert [(line["amount_micro"], line["description"].split(" at ")[0]) for line in lines[:3]] == [
        (10_000, "answers, 5,000 tokens read"),
        (5_000, "answers, 5,000 tokens read again from memory"),
        (60_000, "answers, 20,000 tokens written"),
    ]
    assert {line["kind"] for line in lines[:3]} == {"answers"}
    assert draft["total_micro"] == sum(line["amount_micro"] for line in lines)
    (free,) = (await plain.get("/v1/invoices")).json()["data"]
    assert free["total_micro"] == 0
