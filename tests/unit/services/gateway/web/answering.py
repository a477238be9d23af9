"""Server that `InferenceProcess` starts in tests: it answers with its process and how much it got.

Each answer is counted with the route "/told".
"""

import asyncio
import os
import socket
from typing import Any

import uvloop

from services.gateway.web.handover import API, end_with_api, tell_request
from services.gateway.web.server import HandoverServer


async def who(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the number of the process, the bytes of the body, and the client's port."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = f"{os.getpid()} {size} {scope['client'][1]}".encode()
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


async def main() -> None:
    """Serve until the process ends."""
    api = socket.socket(fileno=API)

    async def counted_answer(scope: Any, receive: Any, send: Any) -> None:
        tell_request(api, "POST", "/told", "200", 0.25)
        await who(scope, receive, send)

    server = HandoverServer(counted_answer, api)
    await asyncio.wait_for(server.run(), 300)


if __name__ == "__main__":
    end_with_api()
    uvloop.run(main())
