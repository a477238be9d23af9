"""The client of a load: connections are kept, refusals seen, streams read to their end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from bench.loads import Load, PlainClient

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 "
REFUSED = HEAD + b"429 Too Many Requests\r\nContent-Length: 2\r\n\r\nno"


@asynccontextmanager
async def client_of(answer: Answer) -> AsyncIterator[PlainClient]:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        client = PlainClient(
            Load("reads", f"http://{host}:{port}/v1/", "Bearer key", "file-1", "job-1")
        )
        yield client
        for connection in client.idle:
            connection.writer.close()


async def test_a_connection_is_used_again_and_a_refusal_is_seen() -> None:
    heads: list[bytes] = []
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(HEAD + b"200 OK\r\ncontent-length: 5\r\n\r\nfiles")
            await reader.readuntil(b"\r\n\r\n")
            writer.write(REFUSED)
        writer.close()

    async with client_of(answer) as client:
        request = client.request("GET", "/files?limit=10")
        assert [await client.send(request) for _ in range(4)] == 2 * [(200, b"files"), (429, b"no")]
        assert connections == 1
    assert heads[0].startswith(b"GET /v1/files?limit=10 HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nauthorization: Bearer key\r\n" in heads[0]


async def test_a_stream_ends_with_its_connection_and_one_that_is_cut_is_a_refusal() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/cut" not in await reader.readuntil(b"\r\n\r\n"):
            writer.write(HEAD + b"200 OK\r\n\r\ndata: 1\n\ndata: 2\n\n")
        writer.close()

    async with client_of(answer) as client:
        assert await client.send(client.request("GET", "/stream")) == (200, b"")
        assert await client.send(client.request("GET", "/stream")) == (200, b"")
        assert await client.send(client.request("GET", "/cut")) == (0, b"")


async def test_an_answer_that_is_no_limit_ends_the_load() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"404 Not Found\r\ncontent-length: 4\r\n\r\nnone")
        writer.close()

    async with client_of(answer) as client:
        with pytest.raises(RuntimeError, match="404"):
            await client.send(client.request("GET", "/files"))


async def test_an_upload_is_a_form_with_the_rows() -> None:
    load = Load("uploads", "http://gateway/v1", "Bearer key", "file-1", "job-1")
    head, _, body = PlainClient(load).upload(b'{"a": 1}').partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    kind = head.partition(b"content-type: ")[2].partition(b"\r\n")[0].decode()
    parsed = httpx.Request("POST", "http://-", content=body, headers={"content-type": kind})
    assert parsed.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'{"a": 1}' in body
    assert b'name="purpose"' in body
