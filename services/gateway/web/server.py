"""uvicorn as a host of the service's process: no signal handlers, no log settings of its own."""

import asyncio
import fcntl
import logging
import socket
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from schemas.units import Ms
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.gateway")
STALLED_MS_MAX: Final[Ms] = 60_000
CONNECTIONS_MAX: Final = 2_048
BACKLOG_MAX: Final = 1_024
STOP_S_MAX: Final = 3
KEEP_ALIVE_S: Final = 30


class _Connection(H11Protocol):  # it bounds a request's head; httptools takes one of any size
    """A connection that is cut when its client has read nothing for STALLED_MS_MAX.

    A follower of events that keeps its connection and reads nothing would hold one of the places
    for followers until it goes. What it has not read is thrown away: a connection that is closed
    in the usual way stays open until all of that is sent.
    """

    _look_again: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """Called when more is buffered than the client has read for."""
        super().pause_writing()
        self._look_later()

    def resume_writing(self) -> None:
        self._stop_looking()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_looking()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._stop_looking()
        self._look_again = self.loop.call_later(
            STALLED_MS_MAX / 1_000, self._cut_unless_read, self._unread_bytes()
        )

    def _stop_looking(self) -> None:
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None

    def _cut_unless_read(self, unread_before: int) -> None:
        if self._unread_bytes() < unread_before:  # it is only slow
            self._look_later()
            return
        log_event(LOG, logging.WARNING, "connection.stalled", client=self.client)
        self.transport.abort()

    def _unread_bytes(self) -> int:
        """Bytes in our buffer and the kernel's, which frees a part that the client has taken."""
        connection = self.transport.get_extra_info("socket")
        in_kernel = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
        return self.transport.get_write_buffer_size() + int.from_bytes(in_kernel, sys.byteorder)


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
            http=_Connection,
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
