"""MLflow servers for tests: its own package's, over a folder."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx

START_S_MAX: Final = 300


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@asynccontextmanager
async def mlflow_server(
    programs: Path, folder: Path, port: int | None = None
) -> AsyncIterator[str]:
    """An MLflow server as its package starts it, with the database and artifacts of a folder. It is
    killed at the end, and may be started again.
    """
    port = port or free_port()
    options = {
        "host": "127.0.0.1",
        "port": str(port),
        "backend-store-uri": f"sqlite:///{folder / 'mlflow.db'}",
        "artifacts-destination": str(folder / "artifacts"),
        "workers": "1",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    log = (folder / "server.log").open("ab")
    server = await asyncio.create_subprocess_exec(
        *(str(programs / "mlflow"), "server", *words),
        cwd=folder,
        stdout=log,
        stderr=log,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        start_new_session=True,  # it has children
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=url) as http, asyncio.timeout(START_S_MAX):
            while True:
                try:
                    if (await http.get("/health")).is_success:
                        break
                except httpx.TransportError:
                    assert server.returncode is None, (folder / "server.log").read_text()
                await asyncio.sleep(0.2)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        await server.wait()
        log.close()
