import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvloop
from starlette.responses import StreamingResponse

from services.gateway.web import server as server_module
from services.gateway.web.server import HttpServer
from tests.unit.tunery.runtime.strays import cancel_by_mistake, tasks_called, until
from tunery.local.ports import find_free
from tunery.runtime.backoff import Backoff
from tunery.runtime.health import Health
from tunery.runtime.hosts import keeping
from tunery.runtime.hosts.keeping import keep
from tunery.runtime.tasks import stop_tasks


async def hello(scope: Any, _receive: Any, send: Any) -> None:
    """The smallest ASGI application."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


async def answer(client: httpx.AsyncClient, url: str) -> str:
    """The body, once the server answers. Raises TimeoutError."""
    async with asyncio.timeout(180):
        while True:
            try:
                return (await client.get(url)).text
            except httpx.TransportError:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", ["http", "uvicorn"])
def test_server_answers_again_on_its_port_after_a_stray_cancellation(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "BACKOFF", Backoff(1, 3_000))
    answers = uvloop.run(answers_after_cancellations(name))  # the loop that services run on
    assert answers == ["/there", "/there"]


async def answers_after_cancellations(name: str) -> list[str]:
    """Cancel the task of this name twice; what the server answers after each."""
    server, health = HttpServer(hello, "127.0.0.1", find_free(set())), Health()
    url = "http://{}:{}/there".format(*server.address)
    keeper = asyncio.create_task(keep(server, health))
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            await server.ready()
            assert (await answer(client, url)) == "/there"
            answers = []
            for _ in range(2):
                cancel_by_mistake(name)
                await until(lambda: dict(health.failing) == {"http": "cancelled"})
                answers.append(await answer(client, url))
            return answers
    finally:
        await stop_tasks((keeper,))
        await until(lambda: not tasks_called("uvicorn"))  # the next test looks for its own


async def test_a_follower_that_reads_nothing_is_cut_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a client held one of the limited streams for as long as it liked."""
    monkeypatch.setattr(server_module, "STALLED_MS_MAX", 300)
    ended = {path: asyncio.Event() for path in ("/stalled", "/slow")}

    async def frames(path: str) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(100_000)
                await asyncio.sleep(0)
        finally:
            ended[path].set()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/there":
            await hello(scope, receive, send)
        else:
            await StreamingResponse(frames(scope["path"]))(scope, receive, send)

    server = HttpServer(app, "127.0.0.1", 0)
    serving = asyncio.create_task(server.run())
    try:
        await server.ready()
        async with stalled(server, "/stalled"), stalled(server, "/slow") as slow:
            async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(180):
                read = 0
                while not ended["/stalled"].is_set():
                    read += len(await slow.readexactly(100_000))
                    await asyncio.sleep(0.01)
                    url = "http://{}:{}/there".format(*server.address)
                    assert (await client.get(url)).text == "/there"
            assert read > 0
            assert not ended["/slow"].is_set()
    finally:
        await stop_tasks((serving,))


@asynccontextmanager
async def stalled(server: HttpServer, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """A request whose response is read only by what is asked of the reader."""
    reader, writer = await asyncio.open_connection(
        *server.address, limit=1_000
    )  # of what it reads ahead
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: api\r\n\r\n".encode())
        await writer.drain()
        yield reader
    finally:
        writer.transport.abort()


@asynccontextmanager
async def served(app: Any, proxies: Sequence[str] = ()) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, "127.0.0.1", 0, proxies)
    serving = asyncio.create_task(server.run())
    try:
        await server.ready()
        yield server
    finally:
        await stop_tasks((serving,))


@asynccontextmanager
async def connected(server: HttpServer, count: int = 1) -> AsyncIterator[list[Any]]:
    """Pairs of a reader and a writer."""
    pairs = [await asyncio.open_connection(*server.address) for _ in range(count)]
    try:
        yield pairs
    finally:
        for _, writer in pairs:
            writer.transport.abort()


async def until_cut(reader: asyncio.StreamReader) -> bytes:
    """What was read before the connection ended. Raises TimeoutError."""
    async with asyncio.timeout(180):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def test_security_h2_idle_connections_lock_no_client_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,100 of them, of a stranger without a key, made the API answer 503 to everybody."""
    monkeypatch.setattr(server_module, "CONNECTIONS_MAX", 20)
    async with served(hello) as server, httpx.AsyncClient(trust_env=False) as client:
        url = "http://{}:{}/there".format(*server.address)
        async with connected(server, 30) as silent:
            assert (await client.get(url)).text == "/there"
            assert await until_cut(silent[0][0]) == b""
            assert not silent[-1][0].at_eof()
            assert (await client.get(url)).text == "/there"


@pytest.mark.parametrize("first", [b"", b"GET /there HTTP/1.1\r\nhost: x\r\n"])
async def test_security_h2_a_head_must_come_in_time(
    monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    """One line every 5 s was accepted for ever."""
    monkeypatch.setattr(server_module, "HEAD_MS_MAX", 200)
    async with served(hello) as server, connected(server) as ((reader, writer),):
        writer.write(first)
        assert await until_cut(reader) == b""


async def test_security_h2_the_next_head_of_a_connection_must_come_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "HEAD_MS_MAX", 1_000)
    async with served(hello) as server, connected(server) as ((reader, writer),):
        for _ in range(3):  # also when there is a pause before a request
            writer.write(b"GET /there HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"/there" in await reader.readuntil(b"0\r\n\r\n")
            await asyncio.sleep(0.4)
        writer.write(b"GET /there HTTP/1.1\r\n")
        assert await until_cut(reader) == b""


async def test_security_h2_a_body_must_come_at_some_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "BODY_MS", 1_000)
    monkeypatch.setattr(server_module, "BODY_BYTES_MIN", 1_000)
    read = 0

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        nonlocal read
        while (message := await receive()).get("more_body", False):
            read += len(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"all"})

    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n"
    async with served(app) as server, connected(server, 2) as ((slow, drip), (fast, pour)):
        drip.write(head + b"x")
        pour.write(head)
        for _ in range(9):  # longer than one window
            pour.write(bytes(1_000))
            await asyncio.sleep(0.15)
        assert (await fast.readuntil(b"all")).startswith(b"HTTP/1.1 200")
        assert await until_cut(slow) == b""
    assert read >= 8_000


@pytest.mark.parametrize(
    ("proxies", "client"), [((), "127.0.0.1"), (("127.0.0.1",), "203.0.113.9")]
)
async def test_security_l12_only_a_trusted_proxy_tells_the_address_of_a_client(
    proxies: Sequence[str], client: str
) -> None:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["client"][0].encode()})

    async with served(app, proxies) as server, httpx.AsyncClient(trust_env=False) as caller:
        url = "http://{}:{}/".format(*server.address)
        answer = await caller.get(url, headers={"x-forwarded-for": "203.0.113.9"})
        assert answer.text == client
