"""TLS endpoint of a replica, for gateways: its agent relays to the socket of the process.

The certificate and the secret are valid for one lease. Both travel sealed with the tenant's key,
so nothing but a gateway can connect, and a gateway connects to nothing but this replica.
"""

import asyncio
import datetime
import hmac
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from services.trainer.effect.lease_certificates import new_certificate, server_context
from tunery.platform.local_socket import connect_to
from tunery.work.replica import SECRET_BYTES_MAX, ReplicaEndpoint

SOCKET: Final = "replica.socket"
SECRET_S_MAX: Final = 10.0  # until a connection has said its secret
CONNECTIONS_MAX: Final = 256
CHUNK_BYTES: Final = 64 * 1024


class ReplicaRelay:
    """The endpoint of one lease. host: where it listens; address: as others know this node."""

    def __init__(self, host: str, address: str) -> None:
        self._host, self._address = host, address
        self._server: asyncio.Server | None = None
        self._relaying: set[asyncio.Task[None]] = set()
        self._secret = secrets.token_hex(32)

    async def open(self, folder: Path, now: datetime.datetime) -> ReplicaEndpoint:
        """Listen for the process that answers at SOCKET in a folder. Raises OSError."""
        self._target = folder / SOCKET
        own = new_certificate("tunery replica", now)
        context = server_context(folder, own)
        self._server = await asyncio.start_server(
            self._serve, self._host, 0, ssl=context, limit=CHUNK_BYTES
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return ReplicaEndpoint(self._address, port, own.certificate, self._secret)

    async def close(self) -> None:
        """Listen no more, and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._relaying:
            task.cancel()
        await asyncio.gather(*self._relaying, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a task serves a connection"  # noqa: S101  # asyncio makes one
        self._relaying.add(task)
        try:
            if len(self._relaying) <= CONNECTIONS_MAX and await self._is_known(reader):
                await self._relay(reader, writer)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, TimeoutError):
            pass  # either end is gone, or it was no gateway: there is no client to answer
        except asyncio.CancelledError:  # by `close`; what asyncio calls next would raise it again
            pass
        finally:
            self._relaying.discard(task)
            writer.close()

    async def _is_known(self, reader: asyncio.StreamReader) -> bool:
        async with asyncio.timeout(SECRET_S_MAX):
            line = await reader.readuntil(b"\n")
        said = line[:SECRET_BYTES_MAX].rstrip(b"\n")
        return hmac.compare_digest(said, self._secret.encode())

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = connect_to(self._target)
        connection.setblocking(False)
        inner_reader, inner_writer = await asyncio.open_unix_connection(sock=connection)
        asking = asyncio.create_task(_copy(reader, inner_writer))
        try:
            await _copy(inner_reader, writer)
        finally:
            asking.cancel()
            with suppress(OSError, asyncio.CancelledError):
                await asking
            inner_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, and pass the end on: a client that leaves ends its answer."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()
