"""Common behaviour of all requests: keys, error envelope, headers, size limits, unknown URLs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import httpx
import pytest

from services.gateway.web import edge
from services.gateway.web.edge import BODY_BYTES_MAX, PER_MINUTE, UPLOADS_OF_TENANT, WrongKeys
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
        ("/v1/chat/sessions", "/adapter"),
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


async def test_security_h3_strange_methods_share_one_series_of_metrics(api: ControlPlane) -> None:
    """Each method was a label: 12,000 of them made 174 MB of metrics, for ever."""
    for number in range(20):
        await api.api.request(f"STRANGE{number}", "/v1/files")
    text = (await api.api.get("/metrics")).text
    assert 'method="other"' in text
    assert "STRANGE" not in text


async def test_security_l2_an_address_with_too_many_wrong_keys_is_answered_429(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ("203.0.113.9", 1)
    inner: Any = api.api._transport
    transport = httpx.ASGITransport(app=inner.app, client=address)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        statuses: list[int] = []
        while 429 not in statuses and len(statuses) < 2 * PER_MINUTE:  # the limit refills meanwhile
            statuses.append((await client.get("/v1/files")).status_code)
        assert (statuses[0], statuses[-1]) == (401, 429)
        monkeypatch.setattr(edge, "STRANGERS_WAIT_S", 3.0)  # far longer than 20 requests take
        asked = [asyncio.create_task(client.get("/v1/files")) for _ in range(20)]
        _, held = await asyncio.wait(asked, timeout=0.2)
        assert held, "a connection that waits for its answers asks once a second"
        tenant = await api.tenant()  # of another address
        assert (await tenant.get("/v1/files")).status_code == 200
        for limited in await asyncio.gather(*held):
            assert limited.json()["error"]["code"] == "rate_limit_exceeded"
            assert int(limited.headers["retry-after"]) >= 1
        assert (await client.get("/healthz")).status_code == 200


async def test_security_l2_requests_without_the_scope_count_like_others(api: ControlPlane) -> None:
    tenant = (await api.tenant()).headers["x-tenant"]
    body = {"name": "few", "scopes": ["files.read"], "requests_per_minute": 2}
    created = await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)
    few = api.client(created.json()["key"])
    statuses = [(await few.get("/v1/models")).status_code for _ in range(3)]
    assert statuses == [403, 403, 429]


@pytest.mark.parametrize("path", ["/v1/files/", "/v1/models//", "/healthz/"])
async def test_security_l8_a_trailing_slash_is_no_redirect(api: ControlPlane, path: str) -> None:
    """The redirect went to a URL made of the header `Host`, which the caller chooses."""
    answer = await api.api.get(path, headers={"host": "elsewhere.example"})
    assert answer.status_code == 200


async def test_security_l8_every_answer_forbids_sniffing_and_loading(api: ControlPlane) -> None:
    for path in ("/v1/files", "/v1/nothing", "/healthz"):
        headers = (await api.api.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("path", ["/v1/fine_tuning/jobs/estimate", "/v1/jobs"])
async def test_security_l1_a_lone_surrogate_in_a_name_is_a_400(
    api: ControlPlane, path: str
) -> None:
    """The response was a 500: it repeated the name, which cannot be encoded as UTF-8."""
    client = await api.tenant()
    for body in (
        b'{"model": "m", "training_file": "f", "hyperparameters": {"\\ud800": 1}}',
        b'{"\\udfff": 1}',
    ):
        headers = {"content-type": "application/json"}
        answer = await client.post(path, content=body, headers=headers)
        assert answer.status_code == 400
        assert set(answer.json()["error"]) == ENVELOPE


async def test_security_l1_a_boundary_of_any_length_is_no_500(api: ControlPlane) -> None:
    client = await api.tenant()
    for length in (257, 5_000):
        kind = "multipart/form-data; boundary=" + "b" * length
        answer = await client.post("/v1/files", content=b"x", headers={"content-type": kind})
        assert answer.status_code == 400


async def test_security_m2_uploads_of_one_tenant_take_turns(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 small files a second of one tenant left another with 503 only."""
    greedy, modest = await api.tenant(), await api.tenant()
    end, begun = asyncio.Event(), 0

    async def held() -> AsyncIterator[bytes]:
        nonlocal begun
        begun += 1
        await end.wait()
        yield b""

    headers = {"content-type": "multipart/form-data; boundary=b"}
    async with asyncio.TaskGroup() as group:
        for _ in range(UPLOADS_OF_TENANT + 3):
            group.create_task(greedy.post("/v1/files", content=held(), headers=headers))
        while begun < UPLOADS_OF_TENANT:  # noqa: ASYNC110  # a count
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # no other one begins
        assert begun == UPLOADS_OF_TENANT
        assert (await api.upload(modest))["object"] == "file"
        assert (await greedy.get("/v1/files")).status_code == 200, "only uploads wait"
        end.set()
    assert begun == UPLOADS_OF_TENANT + 3


pytestmark = pytest.mark.security


class Clock:
    us = 1_000_000

    def __call__(self) -> int:
        return self.us


def exhausted(clock: Clock, address: str = "192.0.2.1") -> WrongKeys:
    keys = WrongKeys(clock)
    for _ in range(PER_MINUTE):
        assert keys.limit(address, "Bearer wrong") is None
        keys.refused(address)
    return keys


def test_an_address_with_too_many_wrong_keys_has_to_wait() -> None:
    clock = Clock()
    keys = exhausted(clock)
    limit = keys.limit("192.0.2.1", "Bearer wrong")
    assert limit is not None
    assert (limit.limit, limit.remaining) == (PER_MINUTE, 0)
    assert 0 < limit.retry_ms <= 60_000 / PER_MINUTE
    assert keys.limit("192.0.2.2", "Bearer wrong") is None
    clock.us += 1_000 * limit.retry_ms
    assert keys.limit("192.0.2.1", "Bearer wrong") is None


def test_a_key_that_was_valid_is_not_held_up_by_others_of_its_address() -> None:
    keys = exhausted(Clock())
    assert keys.limit("192.0.2.1", "Bearer good") is not None
    keys.accepted("Bearer good")
    assert keys.limit("192.0.2.1", "Bearer good") is None
    assert keys.limit("192.0.2.1", None) is not None


def test_addresses_and_keys_that_are_remembered_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edge, "REMEMBERED_MAX", 2)
    keys = exhausted(Clock())
    for name in ("a", "b", "c"):
        keys.refused(name)
        keys.accepted(name)
    assert keys.limit("192.0.2.1", "b") is None  # forgotten
    assert (len(keys._full_at_us), len(keys._valid)) == (2, 2)
