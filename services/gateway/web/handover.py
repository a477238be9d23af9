"""Connections with questions to models, which another process of the gateway serves.

The API reads the beginning of a request. Where it is a question, the connection itself goes to that
process, with the bytes that were read, so the API's event loop carries nothing of the answer. The
process closes a connection after its answer: other requests come to the API. It starts with the
first question. Until it is ready, and while it is away, the API answers itself. Only connections
that it had when it was killed are lost.
"""

import asyncio
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from services.gateway.web.metrics import count_request
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import REPORT_EVERY_MS, beat

LOG: Final = logging.getLogger("tunery.gateway")
QUESTIONS: Final = tuple(
    f"POST /v1/{path} ".encode()
    for path in ("chat/completions", "completions", "responses", "embeddings")
)
MESSAGE_BYTES_MAX: Final = 4_096
READY: Final = b"+"
METRICS_PORT: Final = "TUNERY_METRICS_PORT"  # of the API alone
API: Final = 0  # standard input of the process: a socket to the API
PAUSE_S: Final = 1.0  # before a process that has ended starts again
STOP_S_MAX: Final = 4  # as long as a server's requests may take to end, and a little more
T = TypeVar("T")
decode_request: Final = msgspec.json.Decoder(tuple[str, str, str, float]).decode


class InferenceProcess:
    """Implements `Host`: runs the process, and gives it connections."""

    name = "inference"

    def __init__(self, module: str = "services.gateway.inference") -> None:
        self._module = module
        self._asked = asyncio.Event()
        self._socket: socket.socket | None = None  # to a process that is ready

    async def ready(self) -> None:
        """Return at once: it starts with the first question."""

    def give(self, transport: asyncio.Transport, read: bytes) -> bool:
        """Give a connection away; False: it has to be served here. read: from it, until now."""
        self._asked.set()
        if self._socket is None:
            return False
        transport.pause_reading()
        bytes_read = os.memfd_create("request")
        try:
            os.write(bytes_read, read)
            connection = transport.get_extra_info("socket").fileno()
            socket.send_fds(self._socket, [READY], [connection, bytes_read])
        except OSError:  # it is busy, or has ended
            transport.resume_reading()
            return False
        finally:
            os.close(bytes_read)
        transport.abort()  # here alone: the other process has the connection, too
        return True

    async def run(self) -> None:
        """Start the process with a question; again with the next one after it has ended.

        Raises OSError.
        """
        while True:
            await _patiently(self._asked.wait)
            status = await self._live()
            log_event(LOG, logging.WARNING, "inference.ended", status=status)
            self._asked.clear()
            await asyncio.sleep(PAUSE_S)

    async def _live(self) -> int:
        """Return the exit status of a process that has ended."""
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", self._module),
                    stdin=theirs.fileno(),
                    env={name: os.environ[name] for name in os.environ if name != METRICS_PORT},
                )
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            loop.add_reader(ours, self._hear, ours)
            try:
                return await _patiently(process.wait)
            finally:
                self._socket = None
                loop.remove_reader(ours)
                ours.close()  # the process then ends
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_S_MAX):
                        await process.wait()
                if process.returncode is None:
                    process.kill()

    def _hear(self, said: socket.socket) -> None:
        try:
            message = said.recv(MESSAGE_BYTES_MAX)
        except OSError:  # it was killed before it took all connections
            message = b""
        if message == READY:
            self._socket = said
        elif message:
            count_request(*decode_request(message))
        else:
            asyncio.get_running_loop().remove_reader(said)


def end_with_api() -> None:
    """End this process as SIGTERM does when the API's has ended, also while it starts."""

    def watch() -> None:
        poll = select.poll()
        poll.register(API, 0)  # it tells the end of the other side in any case
        poll.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end with api", daemon=True).start()


def tell_request(api: socket.socket, *request: str | float) -> None:
    """Have the API count a request, whose metrics are those that are read."""
    with suppress(OSError):  # it is gone, or too busy to listen
        api.send(msgspec.json.encode(request))


async def _patiently(wait: Callable[[], Awaitable[T]]) -> T:
    """Wait as long as it takes, and report so."""
    while True:
        beat("waiting")
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_EVERY_MS / 1_000):
                return await wait()
