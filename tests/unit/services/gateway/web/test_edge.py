"""What holds for every request: keys, error envelope, headers, size limits, unknown URLs."""

from collections.abc import AsyncIterator
from unittest import mock

import httpx
import pytest

from services.gateway.web.edge import BODY_BYTES_MAX
from tests.unit.services.gateway.control_plane import ControlPlane

ENVELOPE = {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer wrong", "Bearer " + "x" * 999],
)
async def test_requests_without_a_valid_key_answer_401(
    api: ControlPlane, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    async with httpx.AsyncClient(transport=api.api._transport, base_url="http://api") as client:
        for path in ("/v1/files", "/v1/fine_tuning/jobs/ftjob-1", "/v1/nothing"):
            answer = await client.get(path, headers=headers)
            assert answer.status_code == 401
            assert set(answer.json()["error"]) == ENVELOPE
            assert answer.json()["error"]["code"] == "invalid_api_key"


async def test_every_answer_has_a_request_id(api: ControlPlane) -> None:
    good, bad = await api.api.get("/v1/bases"), await api.api.get("/v1/nothing")
    assert good.headers["x-request-id"].startswith("req_")
    assert bad.headers["x-request-id"] != good.headers["x-request-id"]
    assert good.headers["openai-version"] == "2020-10-01"
    assert int(good.headers["openai-processing-ms"]) >= 0


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/v1/embeddings", "/adapter"),
        ("/v1/fine-tunes", "/v1/fine_tuning/jobs"),
        ("/v1/evals", "`gate`"),
        ("/v1/organization/costs", "/cost"),
    ],
)
async def test_unknown_openai_urls_answer_404_with_an_alternative(
    api: ControlPlane, path: str, instead: str
) -> None:
    answer = await api.api.post(path, json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert instead in answer.json()["error"]["message"]


async def test_answers_name_the_organization(api: ControlPlane) -> None:
    client = await api.tenant()
    answer = await client.get("/v1/models")
    assert answer.headers["openai-organization"] == client.headers["x-tenant"]


async def test_bodies_have_a_limit(api: ControlPlane) -> None:
    large = b'{"model": "' + b"x" * BODY_BYTES_MAX + b'"}'
    headers = {"content-type": "application/json"}
    declared = await api.api.post("/v1/fine_tuning/jobs", content=large, headers=headers)
    assert declared.status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 65_536):
            yield large[start : start + 65_536]

    streamed = await api.api.post("/v1/fine_tuning/jobs", content=chunks(), headers=headers)
    assert (streamed.status_code, streamed.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files/%00",
        "/v1/files?after=%00",
        "/v1/models/%F0%28%8C%28",
        "/v1/models/..%2F..%2Fetc",
        "/v1/files?limit=abc",
        "/v1/files?limit=0",
        "/v1/files?limit=99999999999999999999",
        "/v1/fine_tuning/jobs?limit=-1",
        "/v1/fine_tuning/jobs?after=" + "x" * 300,
        "/v1/fine_tuning/jobs/%ED%A0%80/events",
    ],
)
async def test_odd_urls_are_never_a_5xx(api: ControlPlane, path: str) -> None:
    client = await api.tenant()
    answer = await client.get(path)
    assert 400 <= answer.status_code < 500
    assert set(answer.json()["error"]) == ENVELOPE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{}",
        b"\xff\xfe",
        b'{"model": "\\ud800", "training_file": "x"}',
        b'{"model": "m", "training_file": "a\\u0000b"}',
        b'{"model": NaN, "training_file": "x"}',
        b"[" * 20_000,
        b'{"model": "tiny-llama", "training_file": "x", "lora": {"rank": 1e999}}',
        b'{"model": "tiny-llama", "training_file": "x", "lora": {"rank": [[[]]]}}',
        b'{"model": "tiny-llama", "training_file": "x", "lora": {"rank": true}}',
        b'{"model": "tiny-llama", "training_file": "x", "training": {"slots": NaN}}',
        b'{"model": "tiny-llama", "training_file": "x", "training": {"dropout": NaN}}',
        b'{"model": "tiny-llama", "training_file": "x", "seed": 1e400}',
        b'{"model": "tiny-llama", "training_file": "x", "metadata": {"a": 1}}',
    ],
)
async def test_odd_bodies_are_never_a_5xx(api: ControlPlane, body: bytes) -> None:
    client = await api.tenant()
    headers = {"content-type": "application/json"}
    for path in ("/v1/fine_tuning/jobs", "/v1/fine_tuning/jobs/estimate"):
        answer = await client.post(path, content=body, headers=headers)
        assert 400 <= answer.status_code < 500, answer.text
        assert set(answer.json()["error"]) == ENVELOPE


async def test_an_interrupted_response_breaks_the_connection(api: ControlPlane) -> None:
    client = await api.tenant()
    file = await api.upload(client)

    async def broken(*_: object, **__: object) -> AsyncIterator[bytes]:
        yield b"half"
        raise LookupError("unforeseen")

    with mock.patch.object(api.runtime.blobs, "stream", broken), pytest.raises(LookupError):
        await client.get(f"/v1/files/{file['id']}/content")
