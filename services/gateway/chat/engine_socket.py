"""Asks the engine of this machine over its local socket."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from msgspec import MsgspecError

from schemas.units import Ms
from services.gateway.web.errors import unavailable
from tunery.runtime.local_socket import connect_to
from tunery.work.engine import (
    LINE_BYTES_MAX,
    Question,
    Reply,
    TextAdded,
    decode_reply,
    encode_line,
)

SILENT_MS_MAX: Final[Ms] = 50_000  # loading takes a while; it goes on when a client is told to wait
ENGINE: Final = "The engine that answers questions"
LOADING_RETRY_S: Final = 15


class SocketEngine:
    """Implements `Engine`."""

    def __init__(self, socket: Path, silent_ms_max: Ms = SILENT_MS_MAX) -> None:
        self._socket, self._silent_ms_max = socket, silent_ms_max

    async def ask(self, question: Question) -> AsyncGenerator[Reply, None]:
        """The parts of one answer; the last one ends or refuses it. Raises ApiError 503."""
        try:
            connection = connect_to(self._socket)
            connection.setblocking(False)
            reader, writer = await asyncio.open_unix_connection(
                sock=connection, limit=LINE_BYTES_MAX
            )
        except OSError as error:
            raise unavailable(ENGINE) from error
        try:
            writer.write(encode_line(question))
            while True:
                reply = await self._next(reader)
                yield reply
                if not isinstance(reply, TextAdded):
                    return
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _next(self, reader: asyncio.StreamReader) -> Reply:
        try:
            async with asyncio.timeout(self._silent_ms_max / 1_000):
                line = await reader.readuntil(b"\n")
            return decode_reply(line)
        except TimeoutError as error:
            raise unavailable(ENGINE, LOADING_RETRY_S) from error
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, MsgspecError) as error:
            raise unavailable(ENGINE) from error
