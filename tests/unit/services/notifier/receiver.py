"""A webhook receiver: a real HTTP server on 127.0.0.1 that keeps what it got."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

REASONS = {200: "OK", 302: "Found", 410: "Gone", 500: "Error", 503: "Busy"}


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers with `statuses` in turn, the last one for ever; -1 never answers."""

    statuses: list[int] = field(default_factory=lambda: [200])
    retry_after: str | None = None
    cookie: str | None = None
    requests: list[Request] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?x=1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.requests.append(Request(first.split(" ")[1], headers, body))
            self.came.set()
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            if status < 0:
                await asyncio.sleep(30)
            extra = f"retry-after: {self.retry_after}\r\n" if self.retry_after else ""
            extra += "location: http://127.0.0.1:1/\r\n" if status == 302 else ""
            extra += f"set-cookie: {self.cookie}\r\n" if self.cookie else ""
            reply = f"HTTP/1.1 {status} {REASONS[status]}\r\n{extra}content-length: 0\r\n\r\n"
            writer.write(reply.encode())
            await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(statuses=list(statuses) or [200])
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
