"""Chunks as the SDK of OpenAI reads them."""

import json
from typing import Any

from services.gateway.chat.answering import answer
from services.gateway.chat.frames import chat_frames
from services.gateway.web.streams import DONE
from tests.unit.services.gateway.chat.domain.test_responses import IDENTITY
from tests.unit.services.gateway.chat.scripted_engine import HELLO, QUESTION, ScriptedEngine
from tunery.work.engine import FAILED, AnswerWaits, EngineReply, QuestionRefused, TextAdded


async def sent(*replies: EngineReply, with_usage: bool = False) -> list[bytes]:
    parts = answer(ScriptedEngine(replies), [QUESTION])
    return [part async for part in chat_frames(IDENTITY, parts, count=1, with_usage=with_usage)]


def decoded(frame: bytes) -> dict[str, Any]:
    assert frame.startswith(b"data: ")
    assert frame.endswith(b"\n\n")
    read: dict[str, Any] = json.loads(frame.removeprefix(b"data: "))
    return read


async def test_an_answer_is_a_role_its_texts_an_end_and_done() -> None:
    *chunks, done = await sent(*HELLO)
    assert done == DONE
    choices = [decoded(chunk)["choices"][0] for chunk in chunks]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert all("usage" not in decoded(chunk) for chunk in chunks)


async def test_first_hour2_u28_a_stream_that_waits_is_kept_alive_by_comments() -> None:
    waits = AnswerWaits(loading=True), AnswerWaits(loading=False, ahead=3)
    role, *signs, text, _, _ = await sent(*waits, AnswerWaits(loading=False), *HELLO)
    assert signs[:3] == [
        b": loading the model\n\n",
        b": 3 of your questions come first\n\n",
        b": other answers come first\n\n",
    ]
    assert decoded(role)["choices"][0]["delta"]["role"] == "assistant"
    assert decoded(text)["choices"][0]["delta"] == {"content": "lo"}


async def test_probabilities_come_with_their_text() -> None:
    token = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    _, text, *_ = await sent(TextAdded("a", (token,)), HELLO[-1])
    assert decoded(text)["choices"][0]["logprobs"]["content"] == [token]


async def test_usage_is_in_a_last_frame_without_choices() -> None:
    *chunks, usage, _ = await sent(*HELLO, with_usage=True)
    assert decoded(usage)["choices"] == []
    assert decoded(usage)["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert all(decoded(chunk)["usage"] is None for chunk in chunks)


async def test_an_error_in_an_answer_is_a_frame_and_nothing_is_done() -> None:
    *_, last = await sent(HELLO[0], QuestionRefused(FAILED, "the engine failed"))
    assert decoded(last)["error"]["message"] == "the engine failed"
