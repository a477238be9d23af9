"""Fetches files of adapters for the process of a replica, which has no keys of object storage."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from tunery.platform.local_socket import listen_at
from tunery.platform.seal.abstract import KeyStoreBroken
from tunery.runtime.blobs.abstract import BlobError
from tunery.runtime.telemetry.logs import log_event
from tunery.work.replica import (
    FILE_LINE_BYTES_MAX,
    FileFetched,
    FileRefused,
    FileReply,
    FileWanted,
    decode_file_wanted,
    encode_file_line,
)

LOG: Final = logging.getLogger(__name__)
SOCKET: Final = "files.socket"
AT_ONCE_MAX: Final = 4
Fetch = Callable[[str, Path, str], Awaitable[None]]


class ReplicaFiles:
    """The socket of one lease.

    tenant: whose files may be asked for
    fetch: copies a blob to a file, by its key and hash
    """

    def __init__(self, tenant: str, fetch: Fetch) -> None:
        self._prefix, self._fetch = f"t/{tenant}/", fetch
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._server: asyncio.Server | None = None
        self._folder = Path()
        self._number = 0

    async def open(self, folder: Path) -> Path:
        """Listen in the folder for fetched files, and return the socket's path. Raises OSError."""
        path = folder / SOCKET
        self._folder = folder / "fetched"
        self._folder.mkdir()
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listen_at(path), limit=FILE_LINE_BYTES_MAX
        )
        return path

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            wanted = decode_file_wanted(await reader.readuntil(b"\n"))
            writer.write(encode_file_line(await self._reply(wanted)))
            await writer.drain()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            log_event(LOG, logging.WARNING, "files.broken_off", why=error)
        finally:
            writer.close()

    async def _reply(self, wanted: FileWanted) -> FileReply:
        if not wanted.blob.startswith(self._prefix):
            return FileRefused(f"{wanted.blob} is not of this tenant")
        self._number += 1
        path = self._folder / str(self._number)
        try:
            async with self._turns:
                await self._fetch(wanted.blob, path, wanted.sha256)
        except (BlobError, KeyStoreBroken, OSError, msgspec.MsgspecError) as error:
            log_event(LOG, logging.WARNING, "files.not_fetched", why=error)
            return FileRefused(str(error))
        return FileFetched(str(path))
