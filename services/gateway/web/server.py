"""uvicorn as a host of the service's process: no signal handlers, no log settings of its own."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

from tunery.runtime.watchdog import beat

CONNECTIONS_MAX: Final = 2_048
BACKLOG_MAX: Final = 1_024
STOP_S_MAX: Final = 3
KEEP_ALIVE_S: Final = 30


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, serving: asyncio.Event) -> None:
        super().__init__(config)
        self.servers = []  # uvicorn sets it when it has begun to listen
        self._serving = serving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the process listens to signals and cancels its hosts

    async def on_tick(self, counter: int) -> bool:
        beat("waiting")
        return await super().on_tick(counter)

    def close(self) -> None:
        """What `shutdown` closes. A cancelled server has not done it: its sockets would stay with
        the event loop, which would then take the next server's, under the same number, for them.
        """
        for listening in self.servers:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._serving.set()


class HttpServer:
    """Implements `Host`. `port` 0 takes a free one; `address` tells which, once it is ready."""

    name = "http"

    def __init__(self, app: Any, host: str, port: int) -> None:
        self._app, self._host, self._port = app, host, port
        self._serving = asyncio.Event()
        self.address = (host, port)

    async def ready(self) -> None:
        await self._serving.wait()

    async def run(self) -> None:
        """Serve until cancelled; requests under way get STOP_S_MAX to end. Raises OSError."""
        config = uvicorn.Config(
            self._app,
            http="h11",  # bounds a request's head; httptools takes one of any size
            log_config=None,
            access_log=False,
            lifespan="off",
            limit_concurrency=CONNECTIONS_MAX,
            backlog=BACKLOG_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S_MAX,
            server_header=False,
        )
        server = _Server(config, self._serving)
        # bound here, because uvicorn ends the whole process when it cannot bind
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((self._host, self._port))
            self.address = bound.getsockname()
            task = asyncio.create_task(server.serve(sockets=[bound]), name="uvicorn")
            try:
                # A cancellation of either task ends this run, and what keeps the host begins anew.
                await asyncio.shield(task)
            finally:
                server.should_exit = True
                if not task.done():
                    await asyncio.wait((task,), timeout=STOP_S_MAX + 1)
                server.close()
