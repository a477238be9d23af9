"""A proxy before S3 that ends the process behind it at a chosen moment of a chosen write."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

#: before S3 has any of it; when it has half of the body; when it has stored it and has answered
Moment: TypeAlias = Literal["before", "half", "stored"]
MOMENTS: Final[tuple[Moment, ...]] = get_args(Moment)
LENGTH: Final = re.compile(rb"^content-length: *(\d+)\r$", re.IGNORECASE | re.MULTILINE)
CHUNK_BYTES: Final = 65_536


@dataclass(frozen=True)
class Trap:
    """Where the process ends. key: what the object's name has in it; kill: ends the process."""

    key: str
    moment: Moment
    kill: Callable[[], None]


class S3Gate:
    """Passes on what a client and S3 send each other. `trap`: the next one, None: there is none."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._host, self._port = parts.hostname, parts.port
        self.trap: Trap | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """The endpoint of the proxy."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            yield f"http://{host}:{port}"

    @property
    def is_armed(self) -> bool:
        """Whether no process has come to the trap yet."""
        return self.trap is not None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = Passage(self, reader, writer)
        with suppress(OSError, asyncio.IncompleteReadError):  # one of both ends has gone
            await passage.serve(*await asyncio.open_connection(self._host, self._port))
        writer.close()

    def spring(self, key: str, moment: Moment) -> bool:
        """Kill the process if its trap is here."""
        trap = self.trap
        if trap is None or trap.moment != moment or trap.key not in key:
            return False
        self.trap = None
        trap.kill()
        return True


class Passage:
    """One connection of a client."""

    def __init__(
        self, gate: S3Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._gate, self._reader, self._writer = gate, reader, writer
        self._written: str | None = None  # the object whose body S3 has, and has not answered

    async def serve(self, answers: asyncio.StreamReader, requests: asyncio.StreamWriter) -> None:
        """Pass on requests and answers until one end closes or the process is killed."""
        returning = asyncio.create_task(self._return(answers))
        try:
            while await self._pass_on(requests):
                pass
        finally:
            requests.close()
            returning.cancel()
            await asyncio.gather(returning, return_exceptions=True)

    async def _pass_on(self, requests: asyncio.StreamWriter) -> bool:
        head = await self._reader.readuntil(b"\r\n\r\n")
        method, key = head.split(b" ", 2)[:2]
        length = LENGTH.search(head)
        left = int(length[1]) if length else 0
        written = key.decode() if method == b"PUT" else None
        if written is not None and self._gate.spring(written, "before"):
            return False
        requests.write(head)
        half = left // 2
        while left:
            size = min(CHUNK_BYTES, left - half if left > half else left)
            chunk = await self._reader.readexactly(size)
            left -= size
            if not left:
                self._written = written
            requests.write(chunk)
            await requests.drain()
            if left == half and written is not None and self._gate.spring(written, "half"):
                return False
        return True

    async def _return(self, answers: asyncio.StreamReader) -> None:
        while answer := await answers.read(CHUNK_BYTES):
            written, self._written = self._written, None
            stored = written is not None and answer.startswith(b"HTTP/1.1 200")
            if stored and written is not None and self._gate.spring(written, "stored"):
                return
            self._writer.write(answer)
            await self._writer.drain()
        self._writer.close()
