"""Who knows the certificate of a lease gets through to its agent, and to nobody else."""

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest

from services.trainer.effect.replica_relay import new_certificate, server_context

NOW = datetime.datetime.now(datetime.UTC)
OWN, OTHER = new_certificate("own", NOW), new_certificate("other", NOW)


async def answer(folder: Path, expected: str) -> bytes:
    """What a server with OWN answers to a client that expects a certificate."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"yes")
        writer.close()

    context = server_context(folder, OWN)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    client = ssl.create_default_context(cadata=expected)
    client.check_hostname = False  # it is of one lease, and not of a name
    try:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        try:
            return await reader.read()
        finally:
            writer.close()
    finally:
        server.close()


async def test_a_client_that_knows_the_certificate_is_answered(tmp_path: Path) -> None:
    assert await answer(tmp_path, OWN.certificate) == b"yes"
    assert list(tmp_path.iterdir()) == [], "no key is left in a file"


async def test_security_a_server_with_another_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await answer(tmp_path, OTHER.certificate)
