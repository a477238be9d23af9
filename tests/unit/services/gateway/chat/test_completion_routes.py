"""`/v1/completions` through the unmodified SDK, and errors of `/v1/responses` too."""

from typing import Any

import openai
import pytest

from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.chat.test_routes import HI, engine, sdk
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tunery.work.engine import TOO_LONG, AnswerEnded, QuestionRefused, TextAdded

__all__ = ["engine"]
TOKEN = {"token": "Hello", "logprob": -0.5, "bytes": None}
LIKELY = {**TOKEN, "top_logprobs": [TOKEN]}


async def test_a_text_is_gone_on_with_as_it_is(api: ControlPlane, engine: ScriptedEngine) -> None:
    engine.replies = [TextAdded("Hello", (LIKELY,)), AnswerEnded("length", 5, 1)]
    async with sdk(await api.tenant()) as client:
        done = await client.completions.create(
            model=BASE.base_id, prompt="Say: ", n=2, logprobs=1, seed=3
        )
    assert [choice.text for choice in done.choices] == ["Hello", "Hello"]
    assert {choice.finish_reason for choice in done.choices} == {"length"}
    logprobs = done.choices[0].logprobs
    assert logprobs is not None
    assert (logprobs.tokens, logprobs.text_offset) == (["Hello"], [0])
    assert logprobs.top_logprobs == [{"Hello": -0.5}]
    assert done.usage is not None
    assert done.usage.total_tokens == 7
    asked = engine.asked[0]
    assert (asked.prompt, asked.messages, asked.sampling.tokens_max) == ("Say: ", (), 16)
    assert [asked.asker and asked.asker.first for asked in engine.asked] == [True, False]


async def test_a_text_is_streamed(api: ControlPlane, engine: ScriptedEngine) -> None:
    async with sdk(await api.tenant()) as client:
        stream = await client.completions.create(
            model=BASE.base_id,
            prompt=["Say: "],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "Hello"
    assert chunks[-1].usage is not None
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert len(engine.asked) == 1


async def test_first_hour2_u13_report_16_texts_of_a_list_are_gone_on_with_each(
    api: ControlPlane, engine: ScriptedEngine
) -> None:
    """Tokens are counted for each text once, however many answers there are to it."""
    texts = [f"{number}: " for number in range(20)]
    async with sdk(await api.tenant()) as client:
        done = await client.completions.create(model=BASE.base_id, prompt=texts, n=2)
        stream = await client.completions.create(
            model=BASE.base_id,
            prompt=texts[:2],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    assert [choice.index for choice in done.choices] == [*range(40)]
    assert {choice.text for choice in done.choices} == {"Hello"}
    whole, some = engine.asked[:40], engine.asked[40:]
    assert sorted(asked.prompt or "" for asked in whole) == sorted(texts * 2)
    assert [asked.prompt for asked in some] == texts[:2]
    assert sum(asked.asker is not None and asked.asker.first for asked in whole) == 20
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (20 * 5, 40 * 2)
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 2 * 5


@pytest.mark.parametrize("url", ["/v1/completions", "/v1/responses"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_is_an_errors_response(
    api: ControlPlane, engine: ScriptedEngine, url: str, stream: bool
) -> None:
    engine.replies = [QuestionRefused(TOO_LONG, "too long")]
    client = await api.tenant()
    body = {"model": BASE.base_id, "prompt" if "comp" in url else "input": "Hi", "stream": stream}
    refused = await client.post(url, json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("url", "field", "value"),
    [
        ("completions", "echo", True),
        ("completions", "suffix", "end"),
        ("completions", "prompt", [1, 2]),
        ("responses", "tools", [{"type": "web_search"}]),
        ("responses", "previous_response_id", "resp_1"),
        ("responses", "input", []),
    ],
)
async def test_what_is_not_supported_is_named(
    api: ControlPlane, engine: ScriptedEngine, url: str, field: str, value: Any
) -> None:
    client = await api.tenant()
    body = {"model": BASE.base_id, "prompt" if url == "completions" else "input": "Hi"}
    refused = await client.post(f"/v1/{url}", json={**body, field: value})
    assert refused.status_code == 400
    assert field in refused.json()["error"]["message"] + str(refused.json()["error"]["param"])
    assert engine.asked == []


HABITS: dict[str, dict[str, Any]] = {
    "chat/completions": {"store": True, "reasoning_effort": "low", "verbosity": "low"},
    "responses": {"store": True, "truncation": "auto", "reasoning": {"effort": "low"}},
}


@pytest.mark.parametrize("url", HABITS)
async def test_first_hour2_u18_what_has_no_meaning_is_ignored_and_named(
    api: ControlPlane, engine: ScriptedEngine, url: str
) -> None:
    """Code that was written for OpenAI sets such fields by habit."""
    client = await api.tenant()
    asked = {"input": "Hi"} if url == "responses" else {"messages": HI}
    body = {"model": BASE.base_id, **asked}
    plain = await client.post(f"/v1/{url}", json=body)
    assert "x-tunery-ignored" not in plain.headers
    for stream in (False, True):
        answer = await client.post(f"/v1/{url}", json={**body, **HABITS[url], "stream": stream})
        assert answer.status_code == 200, answer.text
        assert set(answer.headers["x-tunery-ignored"].split(", ")) == set(HABITS[url])
    refused = await client.post(
        f"/v1/{url}", json={**body, **HABITS[url]}, headers={"x-tunery-strict": "true"}
    )
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] in HABITS[url]
    assert len(engine.asked) == 3


@pytest.mark.parametrize(
    ("url", "field", "value", "message"),
    [
        ("chat/completions", "stop", ["x"] * 10_000, "array with maximum length 4, but got"),
        ("completions", "stop", ["x"] * 10_000, "array with maximum length 4, but got"),
        ("responses", "stop", ["x"] * 10_000, "is not a known field"),
        ("chat/completions", "logit_bias", {str(i): 1 for i in range(50_000)}, "is not supported"),
        ("completions", "logit_bias", {str(i): 1 for i in range(50_000)}, "is not supported"),
        ("chat/completions", "tools", [{}] * 100_000, "must have at most 128 entries"),
        ("responses", "tools", [{}] * 100_000, "must have at most 128 entries"),
        ("chat/completions", "messages", [{}] * 100_000, "must have at most 2048 entries"),
        ("responses", "input", [{}] * 100_000, "must have at most 2048 entries"),
        ("completions", "prompt", ["x"] * 100_000, "must have at most 128 entries"),
        ("chat/completions", "metadata", {str(i): "" for i in range(50_000)}, "at most 16 entries"),
        ("responses", "metadata", {str(i): "" for i in range(50_000)}, "at most 16 entries"),
        ("chat/completions", "n", 10**300, "must be at most 8"),
        ("completions", "n", 10**300, "must be at most 8"),
        ("responses", "max_output_tokens", 10**300, "must be at most 1000000"),
    ],
)
async def test_what_is_too_long_is_one_problem_that_names_the_limit(
    api: ControlPlane, engine: ScriptedEngine, url: str, field: str, value: Any, message: str
) -> None:
    hi = {"chat/completions": {"messages": [{"role": "user", "content": "Hi"}]}}
    asked = hi.get(url, {"prompt" if url == "completions" else "input": "Hi"})
    client = await api.tenant()
    refused = await client.post(f"/v1/{url}", json={"model": BASE.base_id, **asked, field: value})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", field)
    assert message in error["message"]
    assert "problems" not in error["message"]  # it is looked at no further
    assert engine.asked == []


async def test_a_missing_model_is_404_as_in_chats(api: ControlPlane) -> None:
    async with sdk(await api.tenant()) as client:
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="none", input="Hi")
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="none", prompt="Hi")
