"""Files of adapters for a process without keys: its agent fetches them and returns their paths."""

import asyncio
import shutil
from pathlib import Path

from msgspec import MsgspecError

from tunery.platform.local_socket import connect_to
from tunery.runtime.blobs.abstract import BlobError
from tunery.work.replica import (
    FILE_LINE_BYTES_MAX,
    FileRefused,
    FileReply,
    FileWanted,
    decode_file_reply,
    encode_file_line,
)


class RelayedFiles:
    """Implements `AdapterFiles`. socket: of the agent."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def get_file(self, key: str, path: Path, *, sha256: str | None = None) -> None:
        """Raises BlobError when the agent has no such file; OSError."""
        reply = await self._ask(FileWanted(key, sha256 or ""))
        if isinstance(reply, FileRefused):
            raise BlobError(reply.message)
        await asyncio.to_thread(shutil.move, reply.path, path)

    async def _ask(self, wanted: FileWanted) -> FileReply:
        connection = connect_to(self._socket)
        connection.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(
            sock=connection, limit=FILE_LINE_BYTES_MAX
        )
        try:
            writer.write(encode_file_line(wanted))
            return decode_file_reply(await reader.readuntil(b"\n"))
        except (EOFError, MsgspecError, asyncio.LimitOverrunError) as error:
            raise BlobError(f"the agent fetches no files: {error}") from error
        finally:
            writer.close()
