"""Forks that outlive the process that asked for them: services of one machine, work of leases."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tunery.confinement.forking import ForkedWorker, ForkServer
from tunery.confinement.policy import ConfinementPolicy
from tunery.runtime.tasks import KeptTask

ANSWER_S_MAX: Final = 300.0  # of a server, which loads first, also on a busy machine
ENDED_MAX: Final = 3  # servers that ended by themselves; after them, all start anew
NO_POLICY: Final = ConfinementPolicy()


class LastingFork:
    """A fork with a session of its own. Like a process of asyncio."""

    def __init__(self, worker: ForkedWorker) -> None:
        self.pid = worker.pid
        self.returncode: int | None = None
        self._worker = worker
        self._keeping = KeptTask(self._await_end, f"end of {worker.pid}", is_watched=False)

    async def wait(self) -> int:
        """Return its exit code, negative for a signal."""
        return await asyncio.shield(self._keeping.ended)

    def send_signal(self, number: int) -> None:
        """Signal it alone. Raises ProcessLookupError once it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        self._worker.signal(number)

    async def _await_end(self) -> int:
        self.returncode = await self._worker.wait()
        self._worker.close()
        return self.returncode


class LastingForks:
    """A fork server, which is started again where it has ended, a few times.

    start_server: starts it. Raises OSError
    """

    def __init__(self, start_server: Callable[[], ForkServer]) -> None:
        self._start_server = start_server
        self._server: ForkServer | None = None
        self.ended = 0  # servers that ended by themselves

    @property
    def server_pid(self) -> int | None:
        """Process id of the server that makes the next fork; None: there is none."""
        return None if self._server is None else self._server.pid

    @property
    def may_start(self) -> bool:
        """True if there is no server, and there may be one."""
        return self._server is None and self.ended < ENDED_MAX

    def prepare(self) -> None:
        """Start the server, unless there is one. It loads meanwhile. Raises OSError."""
        if self.may_start:
            self._server = self._start_server()

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def fork(
        self,
        arguments: Sequence[str],
        standard: Sequence[int],
        *,
        environment: Mapping[str, str],
        niceness: int = 0,
        rights: Mapping[str, Any] | None = None,
        namespaces: Sequence[int] = (),
    ) -> ForkedWorker | None:
        """Fork a worker; see `ForkServer.start`. None: no server answered, and this one is over."""
        server = self._server
        if server is None:
            return None
        task = {
            "arguments": tuple(arguments),
            "environment": dict(environment),
            "niceness": niceness,
            "rights": rights,
            "outlives": True,
        }
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S_MAX):
                if (worker := await server.start(task, standard, namespaces)) is not None:
                    return worker
        if self._server is server:
            self.close()
            self.ended += 1
        return None
