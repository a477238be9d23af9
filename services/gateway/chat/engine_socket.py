"""Asks the engine of this machine over its local socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from schemas.units import Ms
from services.gateway.serving_pools.engine_connection import ENGINE, SILENT_MS_MAX, ask_over
from services.gateway.web.errors import unavailable
from tunery.runtime.local_socket import connect_to
from tunery.work.engine import LINE_BYTES_MAX, Question, Reply


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
        async with aclosing(ask_over(reader, writer, question, self._silent_ms_max)) as replies:
            async for reply in replies:
                yield reply
