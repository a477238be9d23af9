"""Questions through the whole gateway: base models, versions, other tenants, bad requests."""

from typing import Any

import httpx
import openai
import pytest

from tests.unit.services.gateway.chat.scripted_engine import HELLO, ScriptedEngine
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tunery.work.engine import TOO_LONG, AnswerEnded, AnswerWaits, QuestionRefused, ToolCall

URL = "/v1/chat/completions"
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"at": {"type": "string"}},
    "required": ["at"],
    "additionalProperties": False,
}
HI: list[Any] = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def engine(api: ControlPlane) -> ScriptedEngine:
    """The engine of the control plane as it was at its start."""
    scripted = api.deps.engine
    assert isinstance(scripted, ScriptedEngine)
    scripted.begin()
    return scripted


def sdk(client: httpx.AsyncClient) -> openai.AsyncOpenAI:
    inside: Any = httpx.AsyncClient(transport=client._transport)  # the package brings its own httpx
    return openai.AsyncOpenAI(
        base_url="http://api/v1",
        api_key=client.headers["authorization"].removeprefix("Bearer "),
        http_client=inside,
        max_retries=0,
    )


async def test_the_sdk_asks_a_base_model(api: ControlPlane, engine: ScriptedEngine) -> None:
    async with sdk(await api.tenant()) as client:
        answer = await client.chat.completions.create(
            model=BASE.base_id, messages=HI, temperature=0, n=2, seed=1
        )
    assert [choice.message.content for choice in answer.choices] == ["Hello", "Hello"]
    assert answer.usage is not None
    assert answer.usage.total_tokens == 9
    assert [asked.sampling.seed for asked in engine.asked] == [1, 2]
    askers = [asked.asker for asked in engine.asked]
    assert [asker and (asker.model, asker.first) for asker in askers] == [
        (BASE.base_id, True),
        (BASE.base_id, False),
    ]
    assert engine.asked[0].model.base_sha256 == BASE.sha256


async def test_the_sdk_streams(api: ControlPlane, engine: ScriptedEngine) -> None:
    async with sdk(await api.tenant()) as client:
        stream = await client.chat.completions.create(
            model=BASE.base_id, messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello"
    assert chunks[-1].usage is not None
    assert len(engine.asked) == 1


async def test_a_stream_that_waits_says_where_it_stands(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client, body = await api.tenant(), {"model": BASE.base_id, "messages": HI, "stream": True}
    assert "x-tunery-queue-position" not in (await client.post(URL, json=body)).headers
    engine.replies = (AnswerWaits(loading=False, ahead=2), *HELLO)
    answer = await client.post(URL, json=body)
    assert answer.headers["x-tunery-queue-position"] == "3"
    assert ": 2 of your questions come first" in answer.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_context_that_is_too_long_is_400(
    api: ControlPlane, engine: ScriptedEngine, stream: bool
) -> None:
    engine.replies = [QuestionRefused(TOO_LONG, "too long")]
    body = {"model": BASE.base_id, "messages": HI, "stream": stream}
    answer = await (await api.tenant()).post(URL, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True])
async def test_without_an_engine_the_answer_is_503(
    api: ControlPlane, engine: ScriptedEngine, stream: bool
) -> None:
    engine.away = True
    body = {"model": BASE.base_id, "messages": HI, "stream": stream}
    answer = await (await api.tenant()).post(URL, json=body)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0


async def test_first_hour2_report_14_frameworks_that_send_parallel_tool_calls_by_habit_are_answered(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client = await api.tenant()
    for habit in (True, False):
        body = {"model": BASE.base_id, "messages": HI, "parallel_tool_calls": habit}
        answer = await client.post(URL, json=body)
        assert answer.status_code == 200, answer.text
    asked = {"model": BASE.base_id, "input": "Hi", "parallel_tool_calls": False}
    assert (await client.post("/v1/responses", json=asked)).status_code == 200
    assert len(engine.asked) == 3


@pytest.mark.parametrize(
    ("choice", "forced"),
    [
        ("required", ("rain", "wind")),
        ({"type": "function", "function": {"name": "wind"}}, ("wind",)),
        ("auto", ()),
    ],
)
async def test_first_hour2_u4_report_15_a_call_is_forced_through_the_sdk(
    choice: Any, forced: tuple[str, ...], api: ControlPlane, engine: ScriptedEngine
) -> None:
    tools: Any = [
        {"type": "function", "function": {"name": name, "strict": True, "parameters": PARAMETERS}}
        for name in ("rain", "wind")
    ]
    call = ToolCall("wind", '{"at": "A"}')
    engine.begin((AnswerEnded("tool_calls", 5, 2, tool_calls=(call,)),))
    async with sdk(await api.tenant()) as client:
        answer = await client.chat.completions.create(
            model=BASE.base_id, messages=HI, tools=tools, tool_choice=choice
        )
    (asked,) = engine.asked
    assert (asked.forced, asked.strict) == (forced, ("rain", "wind"))
    calls = answer.choices[0].message.tool_calls or []
    assert [each.function.name for each in calls if each.type == "function"] == ["wind"]


async def test_a_bad_request_names_its_fields(api: ControlPlane, engine: ScriptedEngine) -> None:
    body = {"model": BASE.base_id, "messages": HI, "stop": ["x"] * 10_000, "tools": [{}]}
    answer = await (await api.tenant()).post(URL, json=body)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "stop: array too long. Expected an array with maximum length 4" in message
    assert "tools.0.type: is required" in message
    assert engine.asked == []


async def test_a_key_for_chat_may_do_nothing_else(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    tenant = (await api.tenant()).headers["x-tenant"]
    path = f"/v1/tenants/{tenant}/keys"
    created = await api.api.post(path, json={"name": "chat", "scopes": ["chat.write"]})
    client = api.client(created.json()["key"], tenant)
    body = {"model": BASE.base_id, "messages": HI}
    assert (await client.post(URL, json=body)).status_code == 200
    assert (await client.get("/v1/files")).status_code == 403
    created = await api.api.post(path, json={"name": "reader", "scopes": ["read"]})
    assert (await api.client(created.json()["key"]).post(URL, json=body)).status_code == 403
    assert len(engine.asked) == 1


async def test_a_tool_call_is_sent_whole_and_in_chunks(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    client = await api.tenant()
    rain = {"type": "function", "function": {"name": "rain", "parameters": {"type": "object"}}}
    call = ToolCall("rain", '{"at": "A"}')
    engine.begin((AnswerEnded("tool_calls", 5, 2, tool_calls=(call,)),))
    body = {"model": BASE.base_id, "messages": HI, "tools": [rain]}
    (choice,) = (await client.post(URL, json=body)).json()["choices"]
    assert engine.asked[0].tools == (rain,)
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    (called,) = choice["message"]["tool_calls"]
    assert called["function"] == {"name": "rain", "arguments": '{"at": "A"}'}
    streamed = await client.post(URL, json={**body, "stream": True})
    assert '"tool_calls":[{"id":"call_' in streamed.text
    assert '"finish_reason":"tool_calls"' in streamed.text
    engine.begin((AnswerEnded("tool_calls", 5, 2, tool_calls=(call, call)),))
    alone = await client.post(URL, json={**body, "parallel_tool_calls": False})
    assert len(alone.json()["choices"][0]["message"]["tool_calls"]) == 1
    again = [
        *HI,
        choice["message"],
        {"role": "tool", "tool_call_id": called["id"], "content": "no"},
    ]
    engine.begin()
    answer = await client.post(URL, json={**body, "messages": again})
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert "tool_calls" not in answer.json()["choices"][0]["message"]


async def test_first_hour2_u10_an_answer_without_a_limit_ends_before_the_context_does(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    """A typed answer without `max_tokens` held a place for minutes: 3,000 tokens of one string."""
    settings = api.deps.settings
    async with await api.tenant() as client:
        for limits in ({}, {"max_tokens": 9}, {"max_completion_tokens": 10**6}):
            body = {"model": BASE.base_id, "messages": HI} | limits
            assert (await client.post(URL, json=body)).status_code == 200
        body = {"model": BASE.base_id, "input": "Hi"}
        assert (await client.post("/v1/responses", json=body)).status_code == 200
    assert [asked.sampling.tokens_max for asked in engine.asked] == [
        settings.answer_tokens,
        9,
        settings.answer_tokens_max,
        settings.answer_tokens,
    ]
