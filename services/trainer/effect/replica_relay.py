"""TLS endpoint of a replica, for gateways: its agent relays to the socket of the process.

The certificate and the secret are valid for one lease. Both travel sealed with the tenant's key,
so nothing but a gateway can connect, and a gateway connects to nothing but this replica.
"""

import asyncio
import datetime
import hmac
import secrets
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tunery.platform.local_socket import connect_to
from tunery.work.replica import SECRET_BYTES_MAX, ReplicaEndpoint

VALID: Final = datetime.timedelta(days=3)  # longer than a term, and clocks may differ


class LeaseCertificate(NamedTuple):
    """Certificate and private key of a lease, in PEM."""

    certificate: str
    key: str


def new_certificate(name: str, now: datetime.datetime) -> LeaseCertificate:
    """A certificate with a fresh key."""
    key = ec.generate_private_key(ec.SECP256R1())
    common = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(common)
        .issuer_name(common)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    text = certificate.public_bytes(serialization.Encoding.PEM)
    return LeaseCertificate(text.decode("ascii"), secret.decode("ascii"))


def server_context(folder: Path, own: LeaseCertificate) -> ssl.SSLContext:
    """TLS context of the listener; the key is in a file of the folder for a moment."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    path = folder / "relay.pem"
    path.touch(mode=0o600)
    try:
        path.write_text(own.key + own.certificate, "ascii")
        context.load_cert_chain(path)
    finally:
        path.unlink()
    return context


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
