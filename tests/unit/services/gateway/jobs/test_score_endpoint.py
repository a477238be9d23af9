"""Scores of models over HTTP: a server of OpenAI's form on this machine."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from openai.types.fine_tuning.alpha import GraderRunResponse
from pydantic import SecretStr

from services.gateway.jobs.score_endpoint import ScoreEndpoint
from services.gateway.settings import GatewaySettings
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_grader_routes import ROOT
from tests.unit.tunery.graders.test_grader import CHECK, SCORE
from tunery.graders.grader import parse
from tunery.graders.grading import ENDPOINT_ERROR, PARSE_ERROR

KEY = "key-of-the-operator"
GOOD = (200, {"choices": [{"message": {"content": '{"result": 4}'}}]})
TWO = {
    "type": "multi",
    "name": "both",
    "graders": {"judge": SCORE, "other": {**SCORE, "name": "other"}, "check": CHECK},
    "calculate_output": "judge + other + check",
}


@dataclass
class Server:
    """Answers in their order; the last one is repeated."""

    replies: list[tuple[int, Any]]
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        self.keys.add(headers.get("authorization", ""))
        body = await reader.readexactly(int(headers["content-length"]))
        self.asked.append({"path": lines[0].split()[1], **json.loads(body)})
        status, answer = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(*replies: tuple[int, Any]) -> AsyncIterator[tuple[Server, ScoreEndpoint]]:
    server = Server(list(replies))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    settings = GatewaySettings(score_url=f"http://127.0.0.1:{port}/v1/", score_key=SecretStr(KEY))
    async with listening:
        yield server, ScoreEndpoint(settings, pause_s=0.001)


async def test_a_sample_is_graded_by_the_endpoint() -> None:
    async with serving(GOOD) as (server, endpoint):
        grade = await endpoint.grade(parse(SCORE), {}, "Paris")
    assert (grade.reward, dict(grade.errors)) == (4.0, {})
    assert server.asked[0]["path"] == "/v1/chat/completions"
    assert server.asked[0]["messages"][-1]["content"] == "Rate 0 to 5: Paris"
    assert server.keys == {f"bearer {KEY}"}


async def test_models_of_a_grader_are_asked_each_once_and_equal_ones_too() -> None:
    async with serving(GOOD) as (server, endpoint):
        grade = await endpoint.grade(parse(TWO), {"answer": "Paris"}, "Paris")
        alone = await endpoint.grade(parse(CHECK), {"answer": "Paris"}, "Paris")
    assert grade.reward == 9.0
    assert len(server.asked) == 2, "a grader without models asks none"
    assert alone.reward == 1.0


async def test_an_answer_out_of_range_is_brought_into_it() -> None:
    far = (200, {"choices": [{"message": {"content": "900"}}]})
    async with serving(far) as (_, endpoint):
        assert (await endpoint.grade(parse(SCORE), {}, "x")).reward == 5.0


async def test_a_busy_endpoint_is_asked_again_and_a_refusal_is_not() -> None:
    async with serving((503, {}), (429, {}), GOOD) as (server, endpoint):
        assert (await endpoint.grade(parse(SCORE), {}, "x")).reward == 4.0
    assert len(server.asked) == 3
    async with serving((503, {})) as (server, endpoint):
        grade = await endpoint.grade(parse(SCORE), {}, "x")
    assert (grade.reward, len(server.asked)) == (0.0, 3)
    assert grade.errors == {ENDPOINT_ERROR: "the endpoint answered 503"}
    async with serving((401, {"error": KEY})) as (server, endpoint):
        grade = await endpoint.grade(parse(SCORE), {}, "x")
    assert len(server.asked) == 1
    assert KEY not in str(grade.errors)


@pytest.mark.parametrize(
    ("reply", "name"),
    [((200, "no json"), ENDPOINT_ERROR), ((200, {"choices": [{"message": {}}]}), PARSE_ERROR)],
)
async def test_what_is_no_score_is_named(reply: tuple[int, Any], name: str) -> None:
    async with serving(reply) as (_, endpoint):
        grade = await endpoint.grade(parse(SCORE), {}, "x")
    assert (grade.reward, [*grade.errors]) == (0.0, [name])


async def test_an_endpoint_that_is_gone_is_named() -> None:
    async with serving(GOOD) as (_, endpoint):
        pass
    grade = await endpoint.grade(parse(SCORE), {}, "x")
    assert "the endpoint did not answer" in grade.errors[ENDPOINT_ERROR]


def test_models_that_the_operator_does_not_allow_are_refused() -> None:
    url = "http://127.0.0.1:9/v1"
    allowed = ScoreEndpoint(GatewaySettings(score_url=url, score_models=("judge-2", "judge-1")))
    assert allowed.problem(parse(SCORE)) is None
    other = ScoreEndpoint(GatewaySettings(score_url=url, score_models=("judge-2",)))
    assert other.problem(parse(TWO)) == "'judge-1' gives no scores here; there are judge-2"
    nowhere = ScoreEndpoint(GatewaySettings())
    assert nowhere.problem(parse(CHECK)) is None
    assert "no endpoint" in str(nowhere.problem(parse(SCORE)))
    assert KEY not in repr(GatewaySettings(score_key=SecretStr(KEY)))


async def test_a_grader_with_a_model_is_tried_over_http(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await api.tenant()
    body = {"grader": SCORE, "model_sample": "Paris", "item": {}}
    async with serving(GOOD) as (_, endpoint):
        for name in ("_is_there", "_endpoint"):
            monkeypatch.setattr(api.deps.scores, name, getattr(endpoint, name))
        checked = await client.post(f"{ROOT}/validate", json={"grader": SCORE})
        answer = await client.post(f"{ROOT}/run", json=body)
    assert checked.status_code == 200
    run = GraderRunResponse.model_validate(answer.json())
    assert (run.reward, run.sub_rewards) == (4.0, {"judge": 4.0})
