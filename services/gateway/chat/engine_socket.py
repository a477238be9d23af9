"""Asks the engine of this machine over its local socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from msgspec.structs import replace

from schemas.units import Ms
from services.gateway.serving_pools.engine_connection import ENGINE, SILENT_MS_MAX, ask_over
from services.gateway.web.domain.errors import unavailable
from tunery.platform.blobs.encrypted import owner_of
from tunery.platform.local_socket import connect_to
from tunery.platform.seal.sealer import Sealer
from tunery.work.engine import LINE_BYTES_MAX, BlobKey, EngineReply, Question


class SocketEngine:
    """Implements `ChatEngine`. seal: makes the keys of adapters; None: nothing is encrypted."""

    def __init__(
        self, socket: Path, silent_ms_max: Ms = SILENT_MS_MAX, seal: Sealer | None = None
    ) -> None:
        self._socket, self._seal, self._silent_ms_max = socket, seal, silent_ms_max

    async def ask(self, question: Question) -> AsyncGenerator[EngineReply, None]:
        """The parts of one answer; the last one ends or refuses it. Raises ApiError 503."""
        question = replace(question, keys=self._keys_of(question))
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

    def _keys_of(self, question: Question) -> tuple[BlobKey, ...]:
        """The engine has no data keys: it gets what opens the files of this adapter."""
        if self._seal is None:
            return ()
        return tuple(
            BlobKey(file.blob, key.version, key.secret)
            for file in question.model.adapter
            if (tenant := owner_of(file.blob)) is not None
            for key in self._seal.path_keys(tenant, file.blob)
        )
