"""Who has the certificates of a lease gets through, and nobody else."""

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest

from services.trainer.effect.lease_certificates import (
    LeaseCertificate,
    client_context,
    new_certificate,
    server_context,
)

NOW = datetime.datetime.now(datetime.UTC)
OWN, CLIENT, OTHER = (new_certificate(name, NOW) for name in ("own", "client", "other"))


async def ask(folder: Path, shown: LeaseCertificate, expected: str) -> bytes:
    """What a server says that wants to see CLIENT, and is expected to show this one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"yes")
        writer.close()

    context = server_context(folder, OWN, CLIENT.certificate)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        asking = client_context(folder, shown, expected)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=asking)
        try:
            return await reader.read()
        finally:
            writer.close()
    finally:
        server.close()


async def test_both_ends_show_the_certificate_that_the_other_one_knows(tmp_path: Path) -> None:
    assert await ask(tmp_path, CLIENT, OWN.certificate) == b"yes"
    assert list(tmp_path.iterdir()) == [], "no key is left in a file"


async def test_security_a_foreign_end_is_refused(tmp_path: Path) -> None:
    try:
        said = await ask(tmp_path, OTHER, OWN.certificate)
    except OSError:  # whether its end or its reason arrives first is chance
        said = b""
    assert said == b""
    with pytest.raises(ssl.SSLCertVerificationError):
        await ask(tmp_path, CLIENT, OTHER.certificate)
