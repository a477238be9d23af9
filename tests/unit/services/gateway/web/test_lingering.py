"""Over real sockets: only a kernel resets connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from services.gateway.web import lingering
from services.gateway.web.lingering import linger
from services.gateway.web.server import HttpServer
from tunery.runtime.tasks import stop_tasks

PIECE = b"x" * 65_536
PIECES = 160  # more than the buffers of both sockets hold
REFUSAL = b"too large"
LIMIT_S = 20


async def refuse(_scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that answers after the first bytes of a body, and closes."""
    await receive()
    headers = [(b"content-length", str(len(REFUSAL)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": REFUSAL})


async def refuse_lingering(scope: Scope, receive: Receive, send: Send) -> None:
    await refuse(scope, *linger(scope, receive, send))


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[int]:
    """The port of a server that runs the application."""
    server = HttpServer(app, "127.0.0.1", 0)
    task = asyncio.create_task(server.run())
    try:
        await server.ready()
        yield server.address[1]
    finally:
        await stop_tasks((task,))


async def answer_to(port: int, pieces: int, declared: int) -> bytes:
    """What a client reads that first sends its whole body. Raises ConnectionError, TimeoutError."""
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            head = f"POST /v1/files HTTP/1.1\r\nhost: a\r\ncontent-length: {declared}\r\n\r\n"
            writer.write(head.encode())
            for _ in range(pieces):
                writer.write(PIECE)
                await writer.drain()
                await asyncio.sleep(0)
            return await reader.read()
        finally:
            writer.close()


async def test_a_client_that_is_still_sending_reads_the_refusal() -> None:
    async with served(refuse_lingering) as port:
        for _ in range(5):
            answer = await answer_to(port, PIECES, PIECES * len(PIECE))
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert answer.endswith(REFUSAL)


async def test_without_lingering_the_connection_is_reset() -> None:
    async with served(refuse) as port:
        with pytest.raises(ConnectionError):
            await answer_to(port, PIECES, PIECES * len(PIECE))


@pytest.mark.parametrize("bound", [("LINGER_MS_MAX", 50), ("LINGER_BYTES_MAX", 1)])
async def test_a_body_that_never_ends_is_read_within_limits(
    bound: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, *bound)
    async with served(refuse_lingering) as port:
        answer = await answer_to(port, 1, 10**12)
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_messages_of_a_request_without_a_body_pass_unchanged() -> None:
    async def receive() -> Any: ...

    async def send(_message: Any) -> None: ...

    assert linger({"type": "http", "headers": []}, receive, send) == (receive, send)
