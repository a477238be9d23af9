"""uvicorn as a host of the service's process: no signal handlers, no log settings of its own."""

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from schemas.units import Ms
from services.gateway.web.connections import CONNECTIONS_MAX, OF_ADDRESS_MAX, Connections
from services.gateway.web.handover import QUESTIONS, READY
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.gateway")
STALLED_MS_MAX: Final[Ms] = 60_000
HEAD_MS_MAX: Final[Ms] = 10_000  # for a request's head, from the connection or its first byte on
BODY_MS: Final[Ms] = 20_000  # in which a body must bring BODY_BYTES_MIN
BODY_BYTES_MIN: Final = 20_480
OPEN_FILES: Final = 1_024  # of this process, besides connections
BACKLOG_MAX: Final = 1_024
STOP_S_MAX: Final = 3
KEEP_ALIVE_S: Final = 30
#: gives a connection, with what was read from it, to another process; False: there is none
Give: TypeAlias = Callable[[asyncio.Transport, bytes], bool]


class _Connection(H11Protocol):  # it bounds a request's head; httptools takes one of any size
    """A connection that is cut when its client is too slow with a head or a body.

    What it has not read is thrown away: a connection that is closed in the usual way stays open
    until all of that is sent.
    """

    _due: asyncio.TimerHandle | None = None  # when the client must have sent what is expected
    _expected: Any = None  # `h11.IDLE` for a head, `h11.SEND_BODY` for a body
    _body_bytes = 0

    def __init__(
        self, connections: Connections, give: Give | None, *, read: bytes = b"", **options: Any
    ) -> None:
        """read: what another process has read from it."""
        super().__init__(**options)
        self._among, self._give, self._read = connections, give, read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if not self._among.opened(self, self.client[0] if self.client else ""):
            self.cut("too many connections")
            return
        self._expect(h11.IDLE, HEAD_MS_MAX)
        if self._read:
            self.data_received(self._read)

    def data_received(self, data: bytes) -> None:
        is_question = data.startswith(QUESTIONS) and self._is_between_requests()
        if is_question and self._give is not None and self._give(self.transport, data):
            return
        self._body_bytes += len(data)
        super().data_received(data)
        self._look_at_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look_at_request()

    def cut(self, why: str) -> None:
        log_event(LOG, logging.INFO, "connection.cut", client=self.client, why=why)
        self.transport.abort()

    def _is_between_requests(self) -> bool:
        states = (self.conn.our_state, self.conn.their_state)
        return states == (h11.IDLE, h11.IDLE) and not self.conn.trailing_data[0]

    def _look_at_request(self) -> None:
        """Start or stop the timer for what the client has to send now."""
        state = self.conn.their_state
        if state is h11.IDLE:
            self._among.waits(self)
            if not self.conn.trailing_data[0]:
                self._expect(None)  # between two requests uvicorn's own timer runs
            elif self._expected is not h11.IDLE:
                self._expect(h11.IDLE, HEAD_MS_MAX)
            return
        self._among.serves(self)
        if state is not h11.SEND_BODY:
            self._expect(None)
        elif self._expected is not h11.SEND_BODY:
            self._body_bytes = 0
            self._expect(h11.SEND_BODY, BODY_MS)

    def _expect(self, what: Any, within_ms: Ms = 0) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._expected = what
        if what is not None:
            self._due = self.loop.call_later(within_ms / 1_000, self._cut_unless_sent)

    def _cut_unless_sent(self) -> None:
        if self._expected is h11.IDLE:
            self.cut("no request came in time")
            return
        asked = not (self.flow.read_paused or self.conn.they_are_waiting_for_100_continue)
        if asked and self._body_bytes < BODY_BYTES_MIN:
            self.cut("the body came too slowly")
            return
        self._body_bytes = 0
        self._expect(h11.SEND_BODY, BODY_MS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._among.closed(self)
        self._expect(None)
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, began: Callable[["_Server"], None]) -> None:
        super().__init__(config)
        self.servers = []  # uvicorn sets it when it has begun to listen
        self._began = began

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the process listens to signals and cancels its hosts

    async def on_tick(self, counter: int) -> bool:
        beat("waiting")
        return await super().on_tick(counter)

    def close(self) -> None:
        """Close what `shutdown` closes, which a cancelled server has not done. Its sockets would
        stay with the event loop, which would mistake the next server's, under the same number, for
        them.
        """
        for listening in self.servers:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._began(self)


class HttpServer:
    """Implements `Host`. `port` 0 takes a free one; `address` has it once the server is ready.

    proxies: addresses whose `X-Forwarded-For` is believed, because a proxy of the operator sends
    from there. give: takes connections with questions to models; None: they are served here.
    """

    name = "http"
    headers: Sequence[tuple[str, str]] = ()  # of every response

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        proxies: Sequence[str] = (),
        give: Give | None = None,
    ) -> None:
        self._app, self._host, self._port = app, host, port
        self._proxies, self._give = list(proxies), give
        self._serving = asyncio.Event()
        self.address = (host, port)

    async def ready(self) -> None:
        await self._serving.wait()

    async def run(self) -> None:
        """Serve until cancelled; requests under way get STOP_S_MAX to end. Raises OSError."""
        _allow_open_files(CONNECTIONS_MAX + OPEN_FILES)
        connections = Connections(CONNECTIONS_MAX, OF_ADDRESS_MAX, frozenset(self._proxies))
        config = uvicorn.Config(
            self._app,
            http=partial(_Connection, connections, self._give),  # type: ignore[arg-type]  # a function that makes one
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=bool(self._proxies),
            forwarded_allow_ips=self._proxies,
            backlog=BACKLOG_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S_MAX,
            server_header=False,
            headers=list(self.headers),
        )
        server = _Server(config, self._began)
        with self._listening() as sockets:
            task = asyncio.create_task(server.serve(sockets=sockets), name="uvicorn")
            try:
                # A cancellation of either task ends this run, and what keeps the host begins anew.
                await asyncio.shield(task)
            finally:
                server.should_exit = True
                if not task.done():
                    await asyncio.wait((task,), timeout=STOP_S_MAX + 1)
                server.close()

    def _began(self, _server: _Server) -> None:
        self._serving.set()

    @contextmanager
    def _listening(self) -> Iterator[list[socket.socket]]:
        # bound here, because uvicorn ends the whole process when it cannot bind
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # The kernel ends a connection whose client takes nothing of its response for so long: a
            # follower that reads nothing would hold one of the places for followers until it goes.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS_MAX)
            bound.bind((self._host, self._port))
            self.address = bound.getsockname()
            yield [bound]


class HandoverServer(HttpServer):
    """Serves the connections that another process gives it over a socket (`InferenceProcess`).

    Each is closed after its response.
    """

    headers = (("connection", "close"),)

    def __init__(self, app: Any, api: socket.socket, proxies: Sequence[str] = ()) -> None:
        super().__init__(app, "", 0, proxies)
        self._api, self._taking = api, set[asyncio.Task[Any]]()
        api.setblocking(False)

    @contextmanager
    def _listening(self) -> Iterator[list[socket.socket]]:
        try:
            yield []
        finally:
            asyncio.get_running_loop().remove_reader(self._api)

    def _began(self, server: _Server) -> None:
        super()._began(server)
        asyncio.get_running_loop().add_reader(self._api, self._take, server)
        self._api.send(READY)

    def _take(self, server: _Server) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, (connection, bytes_read), *_ = socket.recv_fds(self._api, 1, 2)
        except (OSError, ValueError):  # it has ended
            loop.remove_reader(self._api)
            return
        with os.fdopen(bytes_read, "rb") as file:
            file.seek(0)
            protocol: Any = server.config.http_protocol_class
            make = partial(
                protocol,
                config=server.config,
                server_state=server.server_state,
                app_state=server.lifespan.state,
                read=file.read(),
            )
        taking = loop.connect_accepted_socket(make, socket.socket(fileno=connection))
        task = asyncio.ensure_future(taking)
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)


def _allow_open_files(wanted: int) -> None:
    """Raise this process's limit of open files as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
