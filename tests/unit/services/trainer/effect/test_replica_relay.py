"""TLS to a replica: only connections with its certificate and secret are relayed."""

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest

from services.gateway.serving_pools.engine_connection import ask_over
from services.gateway.serving_pools.replicas import connect
from services.trainer.effect.replica_relay import new_certificate, server_context
from services.trainer.effect.serving import Serving
from tests.unit.services.engine.memory_engine import FOREVER, question
from tests.unit.services.trainer.domain.test_evolve import grant
from tests.unit.services.trainer.effect.test_serving import WORK, Replica, replica
from tunery.work.replica import ReplicaEndpoint

__all__ = ["replica"]  # a fixture


async def test_security_who_has_no_secret_or_another_certificate_is_not_answered(
    replica: Replica,
) -> None:
    endpoint = await replica.endpoint()
    wrong = ReplicaEndpoint(endpoint.host, endpoint.port, endpoint.certificate, "0" * 64)
    with pytest.raises(Exception, match="unavailable"):
        await replica.said(wrong)
    other = Serving(
        grant(), WORK, replica.program.tools, replica.program.settings, replica.program._answers
    )
    folder = replica.folder / "node" / "leases" / "2"
    folder.mkdir()
    await other.write_inputs(folder)
    assert other._endpoint is not None
    swapped = ReplicaEndpoint(
        endpoint.host, endpoint.port, other._endpoint.certificate, endpoint.secret
    )
    with pytest.raises(OSError, match="certificate"):
        await replica.said(swapped)
    await other.close()


async def test_an_answer_stops_when_its_client_leaves(replica: Replica) -> None:
    endpoint = await replica.endpoint()
    reader, writer = await connect(endpoint)
    writer.write(f"{endpoint.secret}\n".encode())
    parts = ask_over(reader, writer, question("a", FOREVER))
    await anext(parts)
    await parts.aclose()
    async with asyncio.timeout(180):
        await replica.host.drain()
    assert not replica.host._asked.total()


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
