"""The proxy's configuration, with Caddy itself in front of the gateway's server."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from services.gateway.web.server import HttpServer
from tests.infra.variables import INFRA
from tunery.local.ports import find_free
from tunery.runtime.tasks import stop_tasks

CADDY: Final = Path(sys.executable).with_name("caddy")
CONFIGURATION: Final = INFRA / "caddy" / "Caddyfile"
HOST: Final = "127.0.0.1"


async def test_security_clients_keep_their_address_and_strangers_their_distance(
    tmp_path: Path,
) -> None:
    may_end = asyncio.Event()

    async def gateway(scope: Any, receive: Any, send: Any) -> None:
        """Answer with the address of the client, and end when the client has read that."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        text = f"{scope['client'][0]} {scope['scheme']}".encode()
        await send({"type": "http.response.body", "body": text, "more_body": True})
        await may_end.wait()
        await send({"type": "http.response.body", "body": b""})

    async with served(gateway) as port, caddy(tmp_path, port) as site:
        forged = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
        async with (
            httpx.AsyncClient(base_url=site, trust_env=False, timeout=180) as client,
            client.stream("GET", "/", headers=forged) as response,
        ):
            assert await anext(response.aiter_raw()) == b"127.0.0.1 http"  # not buffered
            may_end.set()
        reader, writer = await asyncio.open_connection(HOST, int(site.rpartition(":")[2]))
        async with asyncio.timeout(180):
            assert await reader.read() == b""  # it said nothing, so it was cut
        writer.close()


@asynccontextmanager
async def served(gateway: Any) -> AsyncIterator[int]:
    server = HttpServer(gateway, HOST, 0, (HOST,))
    serving = asyncio.create_task(server.run())
    try:
        await server.ready()
        yield server.address[1]
    finally:
        await stop_tasks((serving,))


@asynccontextmanager
async def caddy(folder: Path, gateway_port: int) -> AsyncIterator[str]:
    """Caddy as the page starts it, without TLS; the address of its site."""
    port = find_free(set())
    process = await asyncio.create_subprocess_exec(
        *(CADDY, "run", "--config", CONFIGURATION),
        env={
            **os.environ,
            "SITE": f"http://{HOST}:{port}",
            "GATEWAY": f"{HOST}:{gateway_port}",
            "HEAD_TIMEOUT": "1s",
            "XDG_DATA_HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(180):
            while True:
                try:
                    _, writer = await asyncio.open_connection(HOST, port)
                except OSError:
                    assert process.returncode is None
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                break
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        await process.wait()
