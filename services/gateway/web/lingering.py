"""A connection is closed only after the client has sent what it was sending.

An error may be answered in the middle of a request's body: a file that is too large, for example.
If the server closed the connection with bytes of the body unread, the kernel would reset it, and
the client would see "connection reset" and not the answer. So the rest is read and thrown away,
within limits.
"""

import asyncio
import contextlib
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from schemas.units import Ms

BODY: Final = "http.response.body"
LINGER_MS_MAX: Final[Ms] = 3_000
LINGER_BYTES_MAX: Final = 64 * 1024 * 1024


def linger(scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """`receive` and `send` of one request; its last answer waits for the end of its body."""
    headers = Headers(scope=scope)
    has_more = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if not has_more:
        return receive, send

    async def receive_some() -> Message:
        nonlocal has_more
        message = await receive()
        has_more = message.get("more_body", False)  # none after a disconnect
        return message

    async def read_rest() -> None:
        size = 0
        while has_more and size < LINGER_BYTES_MAX:
            size += len((await receive_some()).get("body", b""))

    async def answer(message: Message) -> None:
        if not has_more or message["type"] != BODY or message.get("more_body", False):
            await send(message)
            return
        await send({**message, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_MS_MAX / 1_000):
                await read_rest()
        await send({"type": BODY, "body": b"", "more_body": False})

    return receive_some, answer
