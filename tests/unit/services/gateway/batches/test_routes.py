"""Batches through the whole gateway, with OpenAI's client."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import openai
import pytest
from openai.types import Batch

from services.gateway.batches.row_answers import ROW_TEXTS_MAX
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import engine, sdk
from tests.unit.services.gateway.chat.test_spending import asking, count, priced
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tunery.work.engine import AnswerEnded, EngineReply, Question

__all__ = ["engine"]
CHAT: Any = "/v1/chat/completions"
EMBEDDINGS: Any = "/v1/embeddings"
ENDED = ("completed", "failed", "cancelled", "expired")


def row(name: str, url: str = CHAT, **body: Any) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": name}]} if url == CHAT else {}
    return {
        "custom_id": name,
        "method": "POST",
        "url": url,
        "body": {"model": BASE.base_id, **asked, **body},
    }


def file_of(*rows: dict[str, Any] | str) -> bytes:
    return "\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows).encode()


async def begin(client: openai.AsyncOpenAI, content: bytes, endpoint: Any = CHAT) -> Batch:
    file = await client.files.create(file=("rows.jsonl", content), purpose="batch")
    assert (file.purpose, file.status) == ("batch", "processed")
    return await client.batches.create(
        input_file_id=file.id,
        endpoint=endpoint,
        completion_window="24h",
        metadata={"run": "nightly"},
    )


async def until(
    client: openai.AsyncOpenAI,
    batch: Batch,
    holds: Callable[[Batch], bool] = lambda batch: batch.status in ENDED,
) -> Batch:
    """Look until the batch satisfies `holds`."""
    async with asyncio.timeout(60):
        while True:
            batch = await client.batches.retrieve(batch.id)
            if holds(batch):
                return batch
            await asyncio.sleep(0.05)


async def used(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    """What the tenant's answers of this month took, by model."""
    page = (await http.get("/v1/usage/completions?group_by=model&limit=31")).json()
    return [result for bucket in page["data"] for result in bucket["results"]]


async def lines(client: openai.AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(line) for line in (await client.files.content(file_id)).text.splitlines()]


async def test_rows_are_answered_and_bad_ones_are_in_the_error_file(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    http = await api.tenant()
    rows = [row(f"row-{number}") for number in range(99)]
    async with sdk(http) as client:
        batch = await begin(client, file_of(*rows[:50], "no JSON", *rows[50:]))
        assert (batch.object, batch.endpoint) == ("batch", CHAT)
        batch = await until(client, batch)
        assert batch.status == "completed"
        counts = batch.request_counts
        assert counts is not None
        assert (counts.total, counts.completed, counts.failed) == (100, 99, 1)
        assert batch.metadata == {"run": "nightly"}
        answered = await lines(client, batch.output_file_id)
        assert [line["custom_id"] for line in answered] == [r["custom_id"] for r in rows]
        assert answered[0]["response"]["status_code"] == 200
        message = answered[0]["response"]["body"]["choices"][0]["message"]
        assert message["content"] == "Hello"
        (wrong,) = await lines(client, batch.error_file_id)
        assert wrong["error"]["code"] == "invalid_json_line"
        assert wrong["error"]["line"] == 51
        file = await client.files.retrieve(batch.output_file_id or "")
        assert (file.purpose, file.filename) == ("batch_output", f"{batch.id}_output.jsonl")
        assert [listed.id async for listed in client.batches.list()] == [batch.id]
    assert len(engine.asked) == 99
    assert all(asked.in_batch for asked in engine.asked)
    (use,) = await used(http)
    assert (use["model"], use["num_model_requests"]) == (BASE.base_id, 99)
    assert (use["input_tokens"], use["output_tokens"]) == (99 * 5, 99 * 2)


@pytest.mark.parametrize(
    ("url", "body", "read"),
    [
        ("/v1/completions", {"prompt": "Hi"}, lambda b: b["choices"][0]["text"]),
        ("/v1/responses", {"input": "Hi"}, lambda b: b["output"][0]["content"][0]["text"]),
    ],
)
async def test_other_endpoints_answer(
    api: ControlPlane, engine: ScriptedEngine, url: str, body: dict[str, Any], read: Any
) -> None:
    async with sdk(await api.tenant()) as client:
        batch = await begin(client, file_of(row("a", url, **body)), url)
        batch = await until(client, batch)
        (line,) = await lines(client, batch.output_file_id)
    assert read(line["response"]["body"]) == "Hello"
    assert batch.error_file_id is None


async def test_texts_are_embedded_and_their_tokens_counted_once(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    engine.replies = [AnswerEnded("stop", 5, 0, embedding=(0.6, -0.8))]
    http = await api.tenant()
    rows = [
        row("one", EMBEDDINGS, input="Hello"),
        row("two", EMBEDDINGS, input=["Hello", "Bye"]),
        row("many", EMBEDDINGS, input=["Hello"] * (ROW_TEXTS_MAX + 1)),
        row("stream", EMBEDDINGS, input="Hello", stream=True),
        row("chat", input="Hello"),
    ]
    async with sdk(http) as client:
        batch = await until(client, await begin(client, file_of(*rows), EMBEDDINGS))
        answered = await lines(client, batch.output_file_id)
        refused = await lines(client, batch.error_file_id)
    assert [line["custom_id"] for line in answered] == ["one", "two"]
    vectors = [line["response"]["body"]["data"] for line in answered]
    assert [[each["embedding"] for each in data] for data in vectors] == [
        [[0.6, -0.8]],
        [[0.6, -0.8]] * 2,
    ]
    by_id = {line["custom_id"]: line["response"] for line in refused if line["custom_id"]}
    assert {name: line["status_code"] for name, line in by_id.items()} == {
        "many": 400,
        "stream": 400,
    }
    assert by_id["many"]["body"]["error"]["param"] == "input"
    assert [line["error"]["code"] for line in refused if line["error"]] == ["invalid_url"]
    assert all(asked.embed and asked.in_batch for asked in engine.asked)
    (use,) = await used(http)
    assert (use["num_model_requests"], use["input_tokens"], use["output_tokens"]) == (2, 15, 0)


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"no JSON\n[]", "invalid_json_line", "not parseable as valid JSON"),
        (b"\n \n", "empty_file", "The batch input file is empty"),
        (file_of(row("a", "/v1/responses")), "invalid_url", "does not match the batch endpoint"),
        (file_of(row("a", stream=True)), "invalid_request_body", "see stream"),
        (file_of(row("a", temperature=9)), "invalid_request_body", "see temperature"),
    ],
)
async def test_a_file_whose_rows_are_all_bad_fails(
    api: ControlPlane, engine: ScriptedEngine, content: bytes, code: str, words: str
) -> None:
    async with sdk(await api.tenant()) as client:
        batch = await until(client, await begin(client, content))
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert batch.errors.data[0].code == code
    assert words in str(batch.errors.data[0].message)
    assert engine.asked == []


async def test_a_row_that_is_refused_is_in_the_error_file(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    rows = [row("a"), row("b", model="no-such-model"), row("a"), row("c", max_tokens="many")]
    async with sdk(await api.tenant()) as client:
        batch = await until(client, await begin(client, file_of(*rows)))
        refused = await lines(client, batch.error_file_id)
    assert batch.status == "completed"
    responses = [line["response"] and line["response"]["status_code"] for line in refused]
    assert responses == [404, None, 400]
    assert refused[1]["error"]["code"] == "duplicate_custom_id"
    assert refused[2]["response"]["body"]["error"]["param"] == "max_tokens"


async def test_above_its_budget_a_batch_is_answered_no_more(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    http, tenant, key_id = await asking(api, await priced(api))
    assert (await http.post("/v1/budgets", json={"max_amount_micro": 1})).status_code == 200
    async with sdk(http) as client:
        engine.begin((AnswerEnded("stop", 5_000_000, 2),))
        batch = await begin(client, file_of(*(row(f"{number}") for number in range(40))))
        batch = await until(client, batch)
        refused = await lines(client, batch.error_file_id)
        assert refused[-1]["response"]["body"]["error"]["code"] == "insufficient_quota"
        await count(api, tenant, key_id)
        await api.until(http, "/v1/budgets/tenant", lambda budget: budget["used_micro"] > 1)
        with pytest.raises(openai.RateLimitError):
            await begin(client, file_of(row("a")))


class SlowEngine(ScriptedEngine):
    """Answers some questions at once, and others never."""

    def __init__(self, at_once: int) -> None:
        super().__init__()
        self.at_once = at_once

    async def ask(self, question: Question) -> AsyncGenerator[EngineReply, None]:
        if len(self.asked) >= self.at_once:
            self.asked.append(question)
            await asyncio.Event().wait()
        async for reply in super().ask(question):
            yield reply


async def test_a_batch_that_is_cancelled_keeps_what_was_answered(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch, engine: ScriptedEngine
) -> None:
    slow = SlowEngine(5)
    monkeypatch.setattr(engine, "ask", slow.ask)
    async with sdk(await api.tenant()) as client:
        batch = await begin(client, file_of(*(row(f"{number}") for number in range(20))))
        await until(
            client,
            batch,
            lambda b: b.request_counts is not None and b.request_counts.completed == 5,
        )
        cancelling = await client.batches.cancel(batch.id)
        assert cancelling.status in ("cancelling", "cancelled")
        batch = await until(client, batch)
        assert batch.status == "cancelled"
        assert batch.cancelled_at is not None
        answered = await lines(client, batch.output_file_id)
        assert [line["custom_id"] for line in answered] == ["0", "1", "2", "3", "4"]
        with pytest.raises(openai.ConflictError, match="status 'cancelled'"):
            await client.batches.cancel(batch.id)


async def test_requests_that_cannot_be_a_batch_are_refused(api: ControlPlane) -> None:
    http = await api.tenant()
    async with sdk(http) as client:
        file = (await api.upload(http))["id"]
        with pytest.raises(openai.BadRequestError, match="'fine-tune'"):
            await client.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")
        with pytest.raises(openai.BadRequestError, match="endpoint"):
            await client.batches.create(
                input_file_id=file, endpoint="/v1/moderations", completion_window="24h"
            )
        with pytest.raises(openai.NotFoundError):
            await client.batches.retrieve("batch_none")


async def test_a_key_that_may_only_ask_may_look_at_batches_with_another_scope(
    api: ControlPlane,
) -> None:
    tenant = (await api.tenant()).headers["x-tenant"]
    statuses = []
    for scopes in (["chat.write"], ["chat.read"]):
        created = await api.api.post(f"/v1/tenants/{tenant}/keys", json={"scopes": scopes})
        client: httpx.AsyncClient = api.client(created.json()["key"], tenant)
        statuses.append((await client.get("/v1/batches")).status_code)
    assert statuses == [403, 200]
