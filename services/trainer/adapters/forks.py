"""Processes of leases as forks of one that has loaded their libraries (`tunery.ml.loaded`)."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from tunery.confinement.confined import Confinement, private_environment
from tunery.confinement.forking import ONE_THREAD, ForkedWorker, ForkServer
from tunery.platform.lasting_forks import NO_POLICY, LastingFork, LastingForks
from tunery.ranks.launching import VISIBLE
from tunery.runtime.telemetry.logs import log_event
from tunery.work.orders import WORK_MODULES

LOADED: Final = "tunery.ml.loaded"
OPEN_FILES: Final = "/proc/self/fd"
LINE_BYTES_MAX: Final = 1 << 20
OF_SERVER: Final = {
    **ONE_THREAD,
    "SPT_NOENV": "1",  # a process's name leaves its environment, by which leftovers are found
}
LOG: Final = logging.getLogger(__name__)


class OrderPipe:
    """Standard input of a fork, for orders. Orders to a dead fork are ignored."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, line: bytes) -> None:
        if not self._pipe.closed:
            with suppress(BrokenPipeError):
                self._pipe.write(line)

    def close(self) -> None:
        self._pipe.close()


class ForkedProcess(LastingFork):
    """A fork at work, with the pipes of a process of asyncio."""

    def __init__(
        self, worker: ForkedWorker, stdout: asyncio.StreamReader, stdin: OrderPipe | None
    ) -> None:
        super().__init__(worker)
        self.stdin, self.stdout = stdin, stdout

    async def _await_end(self) -> int:
        code = await super()._await_end()
        if self.stdin is not None:
            self.stdin.close()
        return code


class WorkForks:
    """The server of a node, which loads the libraries once for all leases.

    environment: of a process under a lease, without its own folder; devices may be others
    folder: of the server
    marks: variables by which its forks are found
    module: with `warm` and `run`, as `tunery.ml.loaded`
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path,
        marks: Mapping[str, str],
        module: str = LOADED,
    ) -> None:
        self._environment, self._folder = {VISIBLE: "", **environment}, folder
        self._marks, self._module = marks, module
        self._forks = LastingForks(self._start_server)

    @property
    def _errors(self) -> Path:
        return self._folder / "stderr.log"

    @property
    def server_pid(self) -> int | None:
        """Process id of the server; None: there is none yet, or there will be none."""
        return self._forks.server_pid

    def prepare(self) -> None:
        """Start the server, unless there is one. It loads while this continues."""
        try:
            self._forks.prepare()
        except OSError as error:  # each lease says itself what is wrong with the machine
            log_event(LOG, logging.WARNING, "forks.not_started", error)

    def _start_server(self) -> ForkServer:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = {**private_environment(self._folder), **self._marks, **OF_SERVER}
        with self._errors.open("wb") as errors:
            return ForkServer(
                self._module,
                [OPEN_FILES],
                NO_POLICY,
                Confinement("off"),
                {**self._environment, **own},
                errors=errors.fileno(),
                detached=True,
            )

    def close(self) -> None:
        """End the server, and its forks with it."""
        self._forks.close()

    def can_start(self, argv: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Return whether this is work for a fork: what libraries read as they load is the same."""
        is_work = len(argv) == 4 and argv[1] == "-m" and argv[2] in WORK_MODULES
        return is_work and {**environment, VISIBLE: ""} == {**self._environment, VISIBLE: ""}

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        rights: Mapping[str, Any] | None,
        standard: tuple[int, int],
        namespaces: tuple[int, ...] = (),
    ) -> ForkedProcess | None:
        """Fork a process; None: no server answered, and nothing was started.

        standard: descriptors of its standard input and error. An input of PIPE is for orders, one
            of DEVNULL is empty
        namespaces: descriptors of those that it shares with other ranks
        """
        self.prepare()
        ended = self._forks.ended
        with ExitStack() as opened, ExitStack() as kept:
            reading, writing = os.pipe2(os.O_CLOEXEC)
            opened.callback(os.close, writing)
            kept.callback(os.close, reading)
            stdin, stderr = standard
            orders: int | None = None
            if stdin == asyncio.subprocess.PIPE:
                stdin, orders = os.pipe2(os.O_CLOEXEC)
                opened.callback(os.close, stdin)
                kept.callback(os.close, orders)
            elif stdin == asyncio.subprocess.DEVNULL:
                stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                opened.callback(os.close, stdin)
            worker = await self._forks.fork(
                (*argv[2:], str(folder)),
                (stdin, writing, stderr),
                environment=environment,
                rights=rights,
                namespaces=namespaces,
            )
            if worker is None:
                if self._forks.ended > ended:
                    times, why = self._forks.ended, self._last_words()
                    log_event(LOG, logging.WARNING, "forks.ended", times=times, why=why)
                return None
            kept.pop_all()
        lines = asyncio.StreamReader(LINE_BYTES_MAX)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(reading, "rb", buffering=0)
        )
        return ForkedProcess(worker, lines, None if orders is None else OrderPipe(orders))

    def _last_words(self) -> str:
        try:
            return self._errors.read_text("utf-8", "replace").strip().rpartition("\n")[2]
        except OSError as error:
            return str(error)
