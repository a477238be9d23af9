"""The API and the bare server are asked the same, in turn."""

import json

import httpx
import pytest

from bench import proxied
from bench.serve import ASKED

FRAMES = b"""data: {"choices":[{"delta":{"role":"assistant","content":""}}]}

data: {"choices":[{"delta":{"content":"a"}}]}

data: {"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":9}}

data: [DONE]

"""


async def test_both_get_the_same_requests_and_their_tokens_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxied, "ROUNDS", 1)
    monkeypatch.setattr(proxied, "FIRSTS", 2)
    bodies: list[dict[str, object]] = []

    def reply(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, content=FRAMES)

    transport = httpx.MockTransport(reply)
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://api") as ours,
        httpx.AsyncClient(
            transport=transport, base_url="http://bare", headers={"x-bare": "1"}
        ) as bare,
    ):
        first_ms, tokens = await proxied.answer(ours, "Hi", 4)
        figures = await proxied.compare(ours, bare, ASKED, 4)
    assert (first_ms > 0, tokens) == (True, 4)
    assert figures["proxied_1_ratio"] > 0
    assert figures.keys() == {
        *("proxied_1_ratio", "proxied_8_ratio"),
        *("proxied_added_first_p50_ms", "proxied_added_first_p99_ms"),
    }
    of_bare = [body for body in bodies if "cache_prompt" in body]
    assert len(of_bare) * 2 == len(bodies) - 1
    for body in of_bare:
        assert body.pop("cache_prompt") is False
        assert bodies.count(body) >= 2, "the API got it, too"
