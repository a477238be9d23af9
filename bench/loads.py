"""The load of the other tenant of `bench.fairness`, in its own process.

    python -m bench.loads < LOAD.json

It prints `ready` when it has used what its plan lets it send at once. It shares the processor with
what is measured, so it costs as little as it can: each request is written once, as bytes, and of an
answer no more is read than its status and its end.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec

from services.gateway.accounts.request_quotas import BURST_PARTS
from services.gateway.plan_limits import PLAN_LIMITS
from tunery.local.paths import BASE_MODEL_ID

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "lighthouse.jsonl"
PURPOSE: Final = {"purpose": "fine-tune"}
OK: Final = 200
EXPECTED: Final = (OK, 429, 0)  # success, a limit, and a connection that was cut
AT_ONCE: Final = PLAN_LIMITS["free"].requests_per_minute_max // BURST_PARTS
PER_SECOND: Final = PLAN_LIMITS["free"].requests_per_minute_max / 60
#: of what the plan allows, once what it allows at once is used
ABOVE, FLOOD = 1.25, 5.0
BURST_PARALLEL: Final = 8
READY: Final = "ready"
READY_S: Final = 2.0  # until all that is repeated has begun
REFUSED_S: Final = 1.0  # pause after a refusal: the shortest that a limit of requests asks for
STREAMS: Final = 60  # that it tries to keep open; its plan has 50
CHECKED_AT_ONCE, CHECKED_COPIES = 6, 40  # files that wait, and their size
ASKED_EVERY_S: Final = 0.5  # whether a file is checked
PREVIEWS_AT_ONCE: Final = 6
IDLE_CONNECTIONS, STRANGE_METHODS, STRANGE_AT_ONCE = 2_100, 12_000, 100
STRANGERS: Final = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


class Load(msgspec.Struct, frozen=True):
    """Pool, API and job of a load process, read from standard input."""

    pool: str
    url: str  # URL of the API, with its version
    authorization: str  # the header's value
    file_id: str
    job_id: str


@dataclass
class KeptConnection:
    """One connection that is kept."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body; of a body that ends with the connection, nothing.

        Raises OSError, EOFError.
        """
        try:
            return await self._send(request)
        except (OSError, EOFError):
            self.writer.close()
            raise

    async def _send(self, request: bytes) -> tuple[int, bytes]:
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split(b" ", 2)[1])
        _, named, after = head.partition(b"content-length:")
        if named:
            body = await self.reader.readexactly(int(after.split(b"\r", 1)[0]))
        else:
            body = b""
            while await self.reader.read(2**16):
                pass
        if not named or b"connection: close" in head:
            self.writer.close()
        return status, body


class PlainClient:
    """A tenant's requests as bytes, and its connections.

    address: host and port of the API, for clients that open a connection. idle: connections that no
        request uses now.
    """

    def __init__(self, load: Load) -> None:
        self._at = urlsplit(load.url.rstrip("/"))
        self.address = (self._at.hostname or "", self._at.port or 80)
        self._authorization = load.authorization
        self.idle: list[KeptConnection] = []

    def request(
        self, method: str, path: str, body: bytes = b"", kind: str = "application/json"
    ) -> bytes:
        """Bytes of a whole request."""
        head = (
            f"{method} {self._at.path}{path} HTTP/1.1\r\nhost: {self._at.netloc}\r\n"
            f"authorization: {self._authorization}\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def upload(self, rows: bytes) -> bytes:
        """The request that uploads a file."""
        files = {"file": ("a.jsonl", rows)}
        form = httpx.Request("POST", "http://-", data=PURPOSE, files=files)
        return self.request("POST", "/files", form.read(), form.headers["content-type"])

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body; 0 where the connection was cut.

        Raises RuntimeError for an answer that is neither OK nor a limit: it would be no load.
        """
        status, body = 0, b""
        with suppress(OSError, EOFError):
            connection = self.idle.pop() if self.idle else await self._connect()
            status, body = await connection.send(request)
            if not connection.writer.is_closing():
                self.idle.append(connection)
        if status not in EXPECTED:
            raise RuntimeError(f"{request[:200]!r}: {status} {body[:500]!r}")
        return status, body

    async def _connect(self) -> KeptConnection:
        return KeptConnection(*await asyncio.open_connection(*self.address))


async def load_reads(client: PlainClient, load: Load, share: float = ABOVE) -> None:
    await _paced(client, client.request("GET", "/files?limit=10"), share)


async def load_uploads(client: PlainClient, load: Load) -> None:
    await _paced(client, client.upload(EXAMPLE.read_bytes()), ABOVE)


async def load_previews(client: PlainClient, load: Load) -> None:
    body = {"model": BASE_MODEL_ID, "training_file": load.file_id, "rows": 20}
    request = client.request("POST", "/fine_tuning/preview", json.dumps(body).encode())
    await _repeat(PREVIEWS_AT_ONCE, partial(client.send, request))


async def load_streams(client: PlainClient, load: Load) -> None:
    request = client.request("GET", f"/fine_tuning/jobs/{load.job_id}/events?stream=true")
    await _repeat(STREAMS, partial(client.send, request))


async def load_checks(client: PlainClient, load: Load) -> None:
    """Files whose check takes a while; each asks for its state until it is checked."""
    request = client.upload(EXAMPLE.read_bytes() * CHECKED_COPIES)

    async def check() -> tuple[int, bytes]:
        status, body = await client.send(request)
        if status == OK:
            asked = client.request("GET", f"/files/{json.loads(body)['id']}")
            while b'"uploaded"' in body or status != OK:
                await asyncio.sleep(ASKED_EVERY_S)
                status, body = await client.send(asked)
        return status, body

    await _repeat(CHECKED_AT_ONCE, check)


async def load_strangers(client: PlainClient, load: Load) -> None:
    """Idle connections, and requests with unknown methods, without a key."""
    idle: list[socket.socket] = []
    for number in range(IDLE_CONNECTIONS):
        source = (STRANGERS[number % (len(STRANGERS) - 1)], 0)
        with suppress(OSError):
            idle.append(socket.create_connection(client.address, timeout=5, source_address=source))
        await asyncio.sleep(0)

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(
            *client.address, local_addr=(STRANGERS[-1], 0)
        )
        for number in range(STRANGE_METHODS // STRANGE_AT_ONCE):
            writer.write(b"METHOD%d /v1/files HTTP/1.1\r\nhost: x\r\n\r\n" % number)
            await reader.readuntil(b"\r\n\r\n")

    async with asyncio.TaskGroup() as group:
        for _ in range(STRANGE_AT_ONCE):
            group.create_task(ask())
        await asyncio.sleep(READY_S)
        _be_ready()
    await asyncio.Event().wait()


LOADS: Final[dict[str, Callable[[PlainClient, Load], Coroutine[Any, Any, None]]]] = {
    "reads": load_reads,
    "uploads": load_uploads,
    "previews": load_previews,
    "streams": load_streams,
    "checks": load_checks,
    "strangers": load_strangers,
    "flood": partial(load_reads, share=FLOOD),
}


async def _paced(client: PlainClient, request: bytes, share: float) -> None:
    """Send a burst, then a constant share of the plan's rate, without waiting for answers."""

    async def burst() -> None:
        for _ in range(AT_ONCE // BURST_PARALLEL):
            await client.send(request)

    await asyncio.gather(*(burst() for _ in range(BURST_PARALLEL)))
    _be_ready()
    begun, number = time.monotonic(), 0
    async with asyncio.TaskGroup() as group:
        while True:
            number += 1
            due_s = begun + number / (share * PER_SECOND)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            group.create_task(client.send(request))


async def _repeat(at_once: int, send: Callable[[], Awaitable[tuple[int, bytes]]]) -> None:
    """Send a limited number at a time, with a pause after each refusal."""

    async def keep_sending() -> None:
        while True:
            status, _ = await send()
            if status != OK:
                await asyncio.sleep(REFUSED_S)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(keep_sending())
        await asyncio.sleep(READY_S)
        _be_ready()


def _be_ready() -> None:
    print(READY, flush=True)


if __name__ == "__main__":
    load = msgspec.json.decode(sys.stdin.buffer.read(), type=Load)
    asyncio.run(LOADS[load.pool](PlainClient(load), load))
