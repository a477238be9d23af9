"""`tunery chat`: one question, a conversation, two models beside each other."""

import json
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tunery.cli.main import main
from tunery.client import Api


def run(
    monkeypatch: pytest.MonkeyPatch, *words: str, typed: str = ""
) -> tuple[Result, list[dict[str, Any]]]:
    """The command against an API that counts what it was asked; and all requests."""
    asked: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        asked.append(body)
        content = f" answer {len(asked)}"
        reason = "length" if body["max_tokens"] == 1 else "stop"
        message = {"role": "assistant", "content": content, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        use: dict[str, Any] = {"prompt_tokens": 4 + len(asked), "completion_tokens": 2}
        if len(asked) == 2:
            use["price"] = {"amount_micro": 125, "currency": "EUR"}
        answer = {"model": body["model"], "choices": [choice], "usage": use}
        return httpx.Response(200, json=answer)

    def connected(url: str, key: str) -> Api:
        return Api(url, key, transport=httpx.MockTransport(handle))

    monkeypatch.setattr("tunery.client.Api", connected)
    environ = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k"}
    return CliRunner().invoke(main, ["chat", *words], env=environ, input=typed), asked


def test_one_question_prints_the_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    done, asked = run(monkeypatch, "a", "--prompt", "Hi", "--temperature", "0.5", "--seed", "3")
    assert (done.exit_code, done.output) == (0, "answer 1\n")
    (body,) = asked
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.5, 3, 256)


def test_first_hour2_u19_two_models_are_asked_the_same_at_temperature_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("a", "--compare", "b", "--prompt", "Hi", "--system", "Be brief.", "--max-tokens", "1")
    done, asked = run(monkeypatch, *words)
    assert done.output == "a: answer 1 …\nb: answer 2 …\n"
    assert [body["model"] for body in asked] == ["a", "b"]
    assert {body["temperature"] for body in asked} == {0}  # the likeliest answer
    assert asked[0]["messages"] == asked[1]["messages"]
    assert asked[0]["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_conversation_goes_on_until_an_empty_line(monkeypatch: pytest.MonkeyPatch) -> None:
    done, asked = run(monkeypatch, "a", typed="one\ntwo\n\n")
    assert done.exit_code == 0, done.output
    assert [message["content"] for message in asked[1]["messages"]] == ["one", " answer 1", "two"]
    assert [line for line in done.output.splitlines() if "tokens" in line] == [
        "5 tokens read, 2 written",
        "6 tokens read, 2 written, 0.000125 EUR",
    ]
    assert len(asked) == 2


def test_the_end_of_input_ends_a_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    done, asked = run(monkeypatch, "a", typed="one\n")
    assert len(asked) == 1
    assert done.exit_code == 0, done.output


def test_json_has_all_answers_to_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(monkeypatch, "a", "--compare", "b", "--prompt", "Hi", "--json")
    assert [answer["model"] for answer in json.loads(done.output)] == ["a", "b"]
    refused, asked = run(monkeypatch, "a", "--json")
    assert refused.exit_code == 2
    assert "--prompt" in refused.output
    assert asked == []
