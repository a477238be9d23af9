"""Starts services as forks of one process that has loaded them all (`preloaded`).

A service that starts Python anew spends three quarters of a second of processor time on imports,
and the gateway three seconds. A fork has them, and shares their memory. Where no server answers, a
service is a program that starts anew.
"""

import asyncio
import json
import os
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from typing import Final

from tunery.confinement.confined import Confinement
from tunery.confinement.forking import ForkedWorker, ForkServer
from tunery.confinement.policy import ConfinementPolicy
from tunery.local.child import Child
from tunery.runtime.tasks import KeptTask

PROGRAM: Final = "tunery.local.preloaded"
ENDED_MAX: Final = 3  # servers that ended by themselves; after them, services start anew
ANSWER_S_MAX: Final = 300.0  # of a server, which loads first, also on a busy machine
NO_POLICY: Final = ConfinementPolicy()
#: the interpreter and the C library read these when they start, before a fork gets its own
EARLY: Final = ("PYTHON", "LD_", "MALLOC_")
#: threads of numpy's linear algebra, which no service needs, would be lost in a fork
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}


class ForkedService:
    """A service that was forked, and waits for `begin`. Like a process of asyncio."""

    def __init__(self, worker: ForkedWorker, sending: int, start: bytes) -> None:
        """sending: descriptor on which the service waits for `start`; it is closed by `begin`."""
        self.pid = worker.pid
        self.returncode: int | None = None
        self._worker, self._sending, self._start = worker, sending, start
        self._keeping = KeptTask(self._await_end, f"end of {worker.pid}", is_watched=False)

    def begin(self) -> None:
        """Let it begin; its end is seen by `wait` alone, also where it has ended by now."""
        with suppress(BrokenPipeError), os.fdopen(self._sending, "wb") as pipe:
            pipe.write(self._start)

    async def wait(self) -> int:
        """Return its exit code, negative for a signal."""
        return await asyncio.shield(self._keeping.ended)

    async def _await_end(self) -> int:
        self.returncode = await self._worker.wait()
        self._worker.close()
        return self.returncode


class ServiceForks:
    """The fork server of this process, whatever stacks it runs; it ends with this process."""

    def __init__(self) -> None:
        self._modules: tuple[str, ...] = ()
        self._server: ForkServer | None = None
        self._ended = 0
        self._early: dict[str, str] = {}

    @property
    def server_pid(self) -> int | None:
        """Process id of the server that forks the next service."""
        return None if self._server is None else self._server.pid

    def close(self) -> None:
        """End the server, once the services have ended."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def prepare(self, modules: Collection[str]) -> None:
        """Start the server, unless there is one. It loads the `app` of each module meanwhile."""
        if self._server is not None or self._ended == ENDED_MAX:
            return
        self._modules = tuple(modules)
        self._early = early(os.environ)
        with suppress(OSError):
            self._server = ForkServer(
                PROGRAM,
                [f"{module}.app" for module in modules],
                NO_POLICY,
                Confinement("off"),
                {**os.environ, **ONE_THREAD},
                detached=True,
            )

    async def start(self, child: Child, env: Mapping[str, str], out: int) -> ForkedService | None:
        """Fork a child, which writes to `out`; None where it has to start anew."""
        if child.module not in self._modules or early(env) != self._early:
            return None
        for _ in range(2):  # the server may have ended since the last start
            self.prepare(self._modules)
            if (server := self._server) is None:
                return None
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_S_MAX):
                    if (forked := await _fork(server, child, env, out)) is not None:
                        return forked
            if self._server is server:
                self.close()
                self._ended += 1
        return None


async def _fork(
    server: ForkServer, child: Child, env: Mapping[str, str], out: int
) -> ForkedService | None:
    reading, sending = os.pipe()
    with ExitStack() as unsent:
        unsent.callback(os.close, sending)
        try:
            worker = await server.start(
                {
                    "arguments": (child.module,),
                    "environment": {},
                    "niceness": child.niceness,
                    "rights": None,
                    "outlives": True,
                },
                (reading, out, out),
            )
        finally:
            os.close(reading)
        if worker is None:
            return None
        unsent.pop_all()
    start = json.dumps({"cwd": str(child.cwd), "env": dict(env)}).encode()
    return ForkedService(worker, sending, start)


def early(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that are read before a fork gets its own."""
    return {name: text for name, text in env.items() if name.startswith(EARLY)}


FORKS: Final = ServiceForks()
