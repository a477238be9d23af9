"""The client against a small server in memory: pages, refusals, outages."""

import asyncio
import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from tunery.client import Api, ApiRefusal, AsyncApi, Unreachable
from tunery.client.asynchronous import COMPLETE_S_MAX, RETRIES_MAX


def served(answers: list[httpx.Response], seen: list[httpx.Request]) -> Api:
    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answers[len(seen) - 1]

    return Api("http://api/v1", "k", transport=httpx.MockTransport(handle))


def listing(ids: list[str], has_more: bool) -> httpx.Response:
    data = [{"id": item} for item in ids]
    return httpx.Response(200, json={"data": data, "has_more": has_more, "last_id": ids[-1]})


def refusal(status: int, code: str) -> httpx.Response:
    error = {"message": "no", "type": "t", "param": "p", "code": code}
    return httpx.Response(status, json={"error": error})


def test_first_hour2_u28_a_question_waits_for_a_model_that_is_not_loaded() -> None:
    """`import report` gave up after a minute, while the model was read on a busy machine."""
    seen: list[httpx.Request] = []
    with served([httpx.Response(200, json={"choices": []})], seen) as api:
        assert api.post("chat", "completions", model="ft:a", messages=[]) == {"choices": []}
    assert seen[0].extensions["timeout"]["read"] == COMPLETE_S_MAX


def test_lists_come_whole_page_after_page() -> None:
    seen: list[httpx.Request] = []
    with served([listing(["a", "b"], True), listing(["c"], False)], seen) as api:
        assert [item["id"] for item in api.jobs()] == ["a", "b", "c"]
    assert seen[1].url.params["after"] == "b"
    assert seen[0].headers["authorization"] == "Bearer k"


def test_a_limit_ends_a_list() -> None:
    seen: list[httpx.Request] = []
    with served([listing(["a", "b"], True)], seen) as api:
        assert [item["id"] for item in api.jobs(limit=2)] == ["a", "b"]
    assert seen[0].url.params["limit"] == "2"


def test_a_refusal_has_code_and_param() -> None:
    with served([refusal(404, "not_found")], []) as api, pytest.raises(ApiRefusal) as caught:
        api.job("ftjob-x")
    assert (caught.value.status, caught.value.code, caught.value.param) == (404, "not_found", "p")


def test_requests_are_retried_in_an_outage_if_that_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunery.client.asynchronous.PAUSE_S", 0)
    job: dict[str, Any] = {"id": "ftjob-1"}
    seen: list[httpx.Request] = []
    answers = [refusal(503, "service_unavailable"), httpx.Response(200, json=job)]
    with served(answers, seen) as api:
        assert api.submit({"model": "m"}, "key-1")["id"] == "ftjob-1"
    assert [request.headers["idempotency-key"] for request in seen] == ["key-1", "key-1"]
    assert json.loads(seen[1].content) == {"model": "m"}


def test_a_key_is_not_created_twice_by_an_outage() -> None:
    seen: list[httpx.Request] = []
    with served([refusal(503, "not_decided_yet")], seen) as api, pytest.raises(ApiRefusal):
        api.create_key("acme", {})
    assert len(seen) == 1


def test_an_unreachable_address_is_named() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    api = Api("http://api/v1", "k", transport=httpx.MockTransport(handle))
    with api, pytest.raises(Unreachable, match="http://api/v1 does not answer"):
        api.job("x")


def test_slashes_in_ids_are_escaped_in_urls() -> None:
    seen: list[httpx.Request] = []
    with served([httpx.Response(200, json={"id": "a/b"})], seen) as api:
        api.model("ft:org/m:x::1")
    assert seen[0].url.raw_path == b"/v1/models/ft:org%2Fm:x::1"


async def test_the_asynchronous_client_does_the_same(tmp_path: Path) -> None:
    seen: list[httpx.Request] = []
    answers = [
        httpx.Response(200, json={"id": "file-1"}),
        listing(["a", "b"], True),
        listing(["c"], False),
        refusal(404, "not_found"),
    ]

    async def handle(request: httpx.Request) -> httpx.Response:
        await request.aread()
        seen.append(request)
        return answers[len(seen) - 1]

    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"{}\n" * 3)
    sent: list[int] = []
    async with AsyncApi("http://api/v1", "k", transport=httpx.MockTransport(handle)) as api:
        assert (await api.upload(rows, progress=sent.append))["id"] == "file-1"
        assert [item["id"] async for item in api.jobs()] == ["a", "b", "c"]
        with pytest.raises(ApiRefusal, match="no"):
            await api.job("x")
    assert b"{}\n{}\n{}\n" in seen[0].content
    assert sent[-1] == 9


def test_a_stream_that_breaks_goes_on_where_it_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunery.client.asynchronous.PAUSE_S", 0)
    seen: list[httpx.Request] = []
    frame = 'event: e\nid: {0}~7\ndata: {{"id": "{0}"}}\n\n'
    before = "retry: 2000\n\n" + frame.format("a")
    sse = {"content-type": "text/event-stream"}
    answers = [
        httpx.Response(200, headers=sse, text=before + ": heartbeat\n\n" + frame.format("b")[:-1]),
        httpx.Response(200, headers=sse, text=frame.format("b") + "data: [DONE]\n\n"),
    ]
    with served(answers, seen) as api:
        assert [item["id"] for item in api.follow("ftjob-1")] == ["a", "b"]
    assert "last-event-id" not in seen[0].headers
    assert seen[1].headers["last-event-id"] == "a~7"
    assert seen[0].url.params["stream"] == "true"


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029"])
def test_a_separator_of_lines_in_a_text_does_not_end_the_frame(separator: str) -> None:
    """JSON leaves these characters as they are; in server-sent events they are text."""
    text = f'id: a~7\ndata: {{"message": "one{separator}two"}}\n\ndata: [DONE]\n\n'
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)
    with served([answer], []) as api:
        assert [item["message"] for item in api.follow("ftjob-1")] == [f"one{separator}two"]


def test_a_stream_that_never_says_anything_new_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tunery.client.asynchronous.PAUSE_S", 0)

    def handle(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("gone", request=request)

    api = Api("http://api/v1", "k", transport=httpx.MockTransport(handle))
    with api, pytest.raises(Unreachable):
        list(api.follow("ftjob-1"))
    with served([refusal(404, "not_found")], []) as api, pytest.raises(ApiRefusal, match="no"):
        list(api.follow("ftjob-x"))
    quiet = httpx.Response(200, headers={"content-type": "text/event-stream"}, text=": hello\n")
    with served([quiet] * RETRIES_MAX, []) as api, pytest.raises(Unreachable, match="breaks off"):
        list(api.follow("ftjob-1"))


@pytest.mark.parametrize("page", [httpx.Response(200, text="It works!"), httpx.Response(200)])
def test_a_response_that_is_not_the_apis_is_shown(page: httpx.Response) -> None:
    for ask in (lambda api: api.job("x"), lambda api: list(api.follow("x"))):
        with served([page], []) as api, pytest.raises(ApiRefusal, match="not as this API does"):
            ask(api)


class Uploads:
    """Takes uploads as the service does. `trouble`: what the next parts get instead."""

    def __init__(self, *trouble: httpx.Response | Exception) -> None:
        self.trouble = list(trouble)
        self.parts: dict[str, bytes] = {}
        self.calls: list[str] = []
        self._numbers: Iterator[int] = count()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(verb := request.url.path.rpartition("/")[2])
        if verb != "parts":
            return httpx.Response(200, json=self._answer(verb, request))
        if self.trouble:
            trouble = self.trouble.pop()
            if isinstance(trouble, Exception):
                raise trouble
            return trouble
        body = request.content.partition(b"\r\n\r\n")[2].rpartition(b"\r\n--")[0]
        name = f"part_{next(self._numbers)}"
        self.parts[name] = body
        sha256 = hashlib.sha256(body).hexdigest()
        return httpx.Response(200, json={"id": name, "sha256": sha256})

    def _answer(self, verb: str, request: httpx.Request) -> dict[str, Any]:
        if verb != "complete":
            return {"id": "upload_1"}
        asked = json.loads(request.content)
        return {"file": {"id": b"".join(self.parts[item] for item in asked["part_ids"]).decode()}}


def test_a_large_file_is_uploaded_in_parts_and_lost_parts_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunery.client.asynchronous.PAUSE_S", 0)
    monkeypatch.setattr("tunery.client.asynchronous.ONE_REQUEST_BYTES_MAX", 10)
    text = "".join(chr(65 + n % 26) for n in range(95))
    rows, sent = tmp_path / "rows.jsonl", list[int]()
    rows.write_text(text)
    server = Uploads(refusal(503, "service_unavailable"), httpx.ReadError("gone"))
    with Api("http://api/v1", "k", transport=httpx.MockTransport(server)) as api:
        assert api.upload_in_parts(rows, progress=sent.append, part_bytes=10)["id"] == text
        assert api.upload(rows)["id"] == text
    assert sent == sorted(sent)
    assert sent[-1] == 95
    assert sorted(map(len, server.parts.values())) == [5, *[10] * 9, 95]
    assert "cancel" not in server.calls


async def test_parts_of_the_asynchronous_client(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("0123456789" * 3)
    server = Uploads()
    async with AsyncApi("http://api/v1", "k", transport=httpx.MockTransport(server)) as api:
        file = await api.upload_in_parts(rows, part_bytes=7)
    assert file["id"] == rows.read_text()
    assert len(server.parts) == 5


def test_an_upload_that_is_refused_is_cancelled(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("0123456789" * 3)
    server = Uploads(refusal(413, "file_too_large"))
    api = Api("http://api/v1", "k", transport=httpx.MockTransport(server))
    with api, pytest.raises(ApiRefusal) as caught:
        api.upload_in_parts(rows, part_bytes=7)
    assert caught.value.code == "file_too_large"
    assert server.calls[-1] == "cancel"
    damaged = Uploads(httpx.Response(200, json={"id": "part_x", "sha256": "0" * 64}))
    api = Api("http://api/v1", "k", transport=httpx.MockTransport(damaged))
    with api, pytest.raises(ApiRefusal, match="wrong bytes"):
        api.upload_in_parts(rows, part_bytes=7)


async def test_it_works_where_an_event_loop_runs_as_in_a_notebook() -> None:
    with served([httpx.Response(200, json={"id": "ftjob-1"})], []) as api:
        assert api.job("ftjob-1")["id"] == "ftjob-1"


def test_a_list_may_be_left_early() -> None:
    seen: list[httpx.Request] = []
    with served([listing(["a", "b"], True)], seen) as api:
        assert next(iter(api.jobs()))["id"] == "a"
        later = api.jobs()
        del later
    assert len(seen) == 1


def test_an_interrupted_call_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ends = Event(), list[str]()

    async def handle(request: httpx.Request) -> httpx.Response:
        began.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        ends.append("waited for")
        return httpx.Response(200, json={})

    result = Future.result

    def interrupted(future: Future[Any], timeout: float | None = None) -> Any:
        while True:
            has_begun = began.is_set()
            if future.done():
                return result(future)
            if has_begun:
                monkeypatch.undo()
                raise KeyboardInterrupt
            time.sleep(0.01)

    with Api("http://api/v1", "k", transport=httpx.MockTransport(handle)) as api:
        monkeypatch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            api.job("ftjob-1")
    assert ends == ["cancelled"]


def test_each_call_of_the_asynchronous_client_is_there() -> None:
    calls = {name for name, of in vars(AsyncApi).items() if callable(of) and name[0] != "_"}
    assert calls == {name for name, of in vars(Api).items() if callable(of) and name[0] != "_"}
