"""Starts services as forks of one process that has loaded them all (`preloaded`).

A service that starts Python anew spends three quarters of a second of processor time on imports,
and the gateway three seconds. A fork has them, and shares their memory. Where no server answers, a
service is a program that starts anew.
"""

import json
import os
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from typing import Final

from tunery.confinement.confined import Confinement
from tunery.confinement.forking import ONE_THREAD, ForkedWorker, ForkServer
from tunery.local.child import Child
from tunery.platform.lasting_forks import NO_POLICY, LastingFork, LastingForks

PROGRAM: Final = "tunery.local.preloaded"
#: the interpreter and the C library read these when they start, before a fork gets its own
EARLY: Final = ("PYTHON", "LD_", "MALLOC_")


class ForkedService(LastingFork):
    """A service that was forked, and waits for `begin`."""

    def __init__(self, worker: ForkedWorker, sending: int, start: bytes) -> None:
        """sending: descriptor on which the service waits for `start`; it is closed by `begin`."""
        super().__init__(worker)
        self._sending, self._start = sending, start

    def begin(self) -> None:
        """Let it begin; its end is seen by `wait` alone, also where it has ended by now."""
        with suppress(BrokenPipeError), os.fdopen(self._sending, "wb") as pipe:
            pipe.write(self._start)


class ServiceForks:
    """The fork server of this process, whatever stacks it runs; it ends with this process."""

    def __init__(self) -> None:
        self._modules: tuple[str, ...] = ()
        self._forks = LastingForks(self._start_server)
        self._early: dict[str, str] = {}

    @property
    def server_pid(self) -> int | None:
        """Process id of the server that forks the next service."""
        return self._forks.server_pid

    def close(self) -> None:
        """End the server, once the services have ended."""
        self._forks.close()

    def prepare(self, modules: Collection[str]) -> None:
        """Start the server, unless there is one. It loads the `app` of each module meanwhile."""
        if not self._forks.may_start:
            return
        self._modules = tuple(modules)
        self._early = early(os.environ)
        with suppress(OSError):
            self._forks.prepare()

    def _start_server(self) -> ForkServer:
        return ForkServer(
            PROGRAM,
            [f"{module}.app" for module in self._modules],
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
            if (forked := await self._fork(child, env, out)) is not None:
                return forked
        return None

    async def _fork(self, child: Child, env: Mapping[str, str], out: int) -> ForkedService | None:
        reading, sending = os.pipe()
        with ExitStack() as unsent:
            unsent.callback(os.close, sending)
            try:
                worker = await self._forks.fork(
                    (child.module,), (reading, out, out), environment={}, niceness=child.niceness
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
