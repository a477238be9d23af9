"""Posting for real: statuses, redirects, silence, private addresses."""

from collections.abc import AsyncIterator

import pytest

from services.notifier.adapters.http import HttpOutbound, retry_after_ms
from services.notifier.domain.target import Forbidden
from services.notifier.ports import (
    ANSWER_BYTES_MAX,
    ReceiverUnreachable,
    ServerAnswer,
    WebhookResponse,
)
from tests.unit.services.notifier.receiver import receiving
from tests.unit.services.notifier.tracking_server import tracking_server


@pytest.fixture
async def outbound() -> AsyncIterator[HttpOutbound]:
    adapter = HttpOutbound(allow_private=True, timeout_ms=60_000)
    yield adapter
    await adapter.close()


async def test_body_headers_and_host_arrive(outbound: HttpOutbound) -> None:
    async with receiving(200) as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")
        assert await outbound.post(url, {"x-a": "1"}, b"body") == WebhookResponse(200)
        (request,) = receiver.requests
        assert request.path == "/hook?x=1"
        assert request.headers["host"] == f"localhost:{receiver.port}"
        assert request.headers["x-a"] == "1"
        assert request.body == b"body"


async def test_security_m4_a_cookie_of_one_receiver_is_not_sent_to_another_at_its_address(
    outbound: HttpOutbound,
) -> None:
    async with receiving(200) as receiver:
        receiver.cookie = "session=of-tenant-a; Path=/"
        await outbound.post(receiver.url, {}, b"")
        await outbound.post(receiver.url, {}, b"")
        assert all("cookie" not in request.headers for request in receiver.requests)
        assert len(receiver.requests) == 2


async def test_redirects_are_not_followed(outbound: HttpOutbound) -> None:
    async with receiving(302) as receiver:
        assert (await outbound.post(receiver.url, {}, b"")).status == 302
        assert len(receiver.requests) == 1


async def test_timeouts_and_closed_ports_are_retried() -> None:
    impatient = HttpOutbound(allow_private=True, timeout_ms=200)
    async with receiving(-1) as receiver:
        with pytest.raises(ReceiverUnreachable, match="no response within"):
            await impatient.post(receiver.url, {}, b"")
    with pytest.raises(ReceiverUnreachable):
        await impatient.post("http://127.0.0.1:1/", {}, b"")
    with pytest.raises(ReceiverUnreachable, match="cannot be resolved"):
        await impatient.post("http://nowhere.invalid/", {}, b"")
    await impatient.close()


@pytest.mark.parametrize(
    "url",
    [
        "https://{}.invalid/x",
        "https://{}.example.com:99999/x",
        "https://{}.example.com:port/x",
        "https://{}@example.com/",
        "gopher://{}.example.com/",
        "https://{}.example.com\\@10.0.0.1/",
        "https://[{}]/",
        "https://" + "{}." * 90 + "example.com/",
    ],
)
async def test_review2_p8_no_failure_names_the_host_of_a_webhook(url: str) -> None:
    """Its text reaches logs and to-do rows, which an erasure does not clean."""
    planted = "zqhook7f3a"
    strict = HttpOutbound(allow_private=False, timeout_ms=1_000)
    with pytest.raises((Forbidden, ReceiverUnreachable)) as failure:
        await strict.post(url.format(*[planted] * 90), {}, b"")
    await strict.close()
    assert planted not in str(failure.value)
    assert "10.0.0.1" not in str(failure.value)


async def test_review2_p8_a_failed_connection_is_named_without_its_host(
    outbound: HttpOutbound,
) -> None:
    with pytest.raises(ReceiverUnreachable, match=r"^ConnectError$"):
        await outbound.post("https://localhost:1/zqhook", {}, b"")


async def test_a_host_name_with_a_private_address_is_refused() -> None:
    strict = HttpOutbound(allow_private=False, timeout_ms=1_000)
    for url in ("https://localhost/", "https://127.0.0.1/", "https://[::1]/"):
        with pytest.raises(Forbidden, match="address is private"):
            await strict.post(url, {}, b"")
    await strict.close()


async def test_retry_after_of_a_busy_receiver_is_returned(outbound: HttpOutbound) -> None:
    async with receiving(503) as receiver:
        receiver.retry_after = "120"
        assert await outbound.post(receiver.url, {}, b"") == WebhookResponse(503, 120_000)


@pytest.mark.parametrize("value", [None, "", "soon", "-1", "1" * 12, "²"])
def test_other_retry_after_values_are_ignored(value: str | None) -> None:
    assert retry_after_ms(value) is None


async def test_the_answer_of_a_tenants_server_is_read_to_a_limit(outbound: HttpOutbound) -> None:
    async with tracking_server() as server:
        path = "/api/2.0/mlflow/experiments/create"
        answer = await outbound.call("POST", server.url + path, {}, b'{"name": "lamps"}')
        assert answer == ServerAnswer(200, b'{"experiment_id": "0"}')
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "_answer", lambda *_: (200, "a" * ANSWER_BYTES_MAX))
            with pytest.raises(ReceiverUnreachable, match="more than"):
                await outbound.call("GET", server.url + path, {}, b"")


async def test_security_a_server_of_a_tenant_at_a_private_address_is_not_called() -> None:
    strict = HttpOutbound(allow_private=False, timeout_ms=1_000)
    async with tracking_server() as server:
        with pytest.raises(Forbidden):
            await strict.call("GET", server.url, {}, b"")
        with pytest.raises(Forbidden):
            await strict.call("GET", server.url.replace("http:", "https:"), {}, b"")
        assert server.requests == 0
    await strict.close()
