"""Processes of leases. One whose training has finished is kept for the evaluation of its job.

One that dies before it has begun its evaluation is replaced by a fresh process in the same lease,
whose job sees nothing of it.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from services.trainer.adapters.forks import WorkForks
from services.trainer.adapters.kept import KeptProcesses
from services.trainer.adapters.processes import ProcessGroup, ProcessGroups
from services.trainer.ports import NO_ACCESS, Access, WorkProcess
from tunery.runtime.telemetry.logs import log_event
from tunery.work.exits import ExitCode
from tunery.work.orders import BEGUN, ENDED, GOES_ON, SCORE, TRAIN, Order, encode_order

Environment: TypeAlias = Mapping[str, str]
LOG: Final = logging.getLogger(__name__)


class LeaseProcesses:
    """Launcher of a node with `slots` slots.

    folder: of processes that are kept
    loads: loads the libraries of work at the start; None: they are loaded with the first lease
    """

    def __init__(
        self, launcher: ProcessGroups, folder: Path, slots: int, loads: WorkForks | None = None
    ) -> None:
        self._launcher, self._slots, self._loads = launcher, slots, loads
        self._kept = KeptProcesses(folder)
        self._running = 0
        self._one_at_a_time = asyncio.Lock()

    async def start(
        self,
        argv: Sequence[str],
        environment: Environment,
        folder: Path,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        """Give the process of its training the order to evaluate, or start one. Raises OSError."""
        goes_on = tuple(argv[1:3]) == ("-m", TRAIN) and bool(access.job)
        goes_on = goes_on and access.takes_orders
        if goes_on:
            argv = (*argv[:2], GOES_ON, *argv[3:])

        async def begin() -> WorkProcess:
            if goes_on:
                return await self._launcher.start_one(argv, environment, folder, access, reads=True)
            return await self._launcher.start(argv, environment, folder, access)

        def end() -> None:
            self._running -= access.processes

        def keep(process: WorkProcess) -> None:
            assert isinstance(process, ProcessGroup), "one process"  # noqa: S101  # `begin`
            self._kept.keep(process, folder, environment, access)

        async with self._one_at_a_time:
            kept = await self._take_kept(argv, environment, access)
            await self._kept.end_those_beyond(
                environment, self._slots - self._running - access.processes
            )
            if kept is None:
                process = LeasedProcess(await begin(), None, end, keep if goes_on else None)
            else:
                waiting, of_waiting = kept
                move_into(of_waiting, folder)
                waiting.hand_over(encode_order(Order(spec=argv[3], folder=str(folder))))
                process = LeasedProcess(waiting, begin, end)
            self._running += access.processes
        return process

    async def sweep(self) -> int:
        """Kill leftovers as `ProcessGroups.sweep` does; then load for the first lease."""
        async with self._one_at_a_time:
            await self._kept.close()
        killed = await self._launcher.sweep()
        if self._loads is not None:
            self._loads.prepare()
        return killed

    async def _take_kept(
        self, argv: Sequence[str], environment: Environment, access: Access
    ) -> tuple[ProcessGroup, Path] | None:
        """The process of the training of this job, where this starts its evaluation."""
        if not access.job or tuple(argv[1:3]) != ("-m", SCORE):
            return None
        return await self._kept.take(environment, access)


def move_into(waiting: Path, folder: Path) -> None:
    """Make the folder of a kept process that of a lease, with all that the lease has there.

    It may write below its folder alone, wherever that is moved to. Raises OSError.
    """
    for entry in tuple(folder.iterdir()):
        entry.rename(waiting / entry.name)
    folder.rmdir()
    waiting.rename(folder)


class LeasedProcess:
    """The process of one lease, which a fresh one replaces if it dies before it has begun.

    begin: starts the fresh one; None: the process is one already
    end: called once, when no process is left, or it is kept
    keep: keeps it when it has said `ENDED`; None: it ends
    """

    def __init__(
        self,
        process: WorkProcess,
        begin: Callable[[], Awaitable[WorkProcess]] | None,
        end: Callable[[], None],
        keep: Callable[[WorkProcess], None] | None = None,
    ) -> None:
        self._process, self._begin, self._end, self._keep = process, begin, end, keep
        self._signals: list[int] = []
        self._has_finished = False
        self._status: int | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines as of `WorkProcess`, without those that are about the process itself."""
        begin = self._begin
        async for line in self._process.lines():
            if begin is not None:
                begin = None if line == BEGUN else begin
            elif self._ends(line):
                return
            else:
                yield line
        if begin is None or self._signals:
            return
        status = await self._process.wait()
        log_event(LOG, logging.WARNING, "process.died", status=status)
        self._process = await begin()
        for number in self._signals:  # that came meanwhile
            self._process.signal(number)
        async for line in self._process.lines():
            if self._ends(line):
                return
            yield line

    def _ends(self, line: bytes) -> bool:
        self._has_finished = self._keep is not None and line == ENDED
        return self._has_finished

    def signal(self, number: int) -> None:
        self._signals.append(number)
        self._process.signal(number)

    async def wait(self) -> int:
        """Status as of `WorkProcess`; a process that is kept has finished."""
        if self._status is not None:
            return self._status
        status = ExitCode.FINISHED if self._is_kept() else await self._ended()
        if self._status is None:
            self._status = status
            self._end()
        return status

    def _is_kept(self) -> bool:
        """Keep the process where its training has finished and no signal was sent."""
        if self._keep is None or not self._has_finished or self._signals:
            return False
        try:
            self._keep(self._process)
        except OSError as error:
            log_event(LOG, logging.WARNING, "process.not_kept", error)
            return False
        return True

    async def _ended(self) -> int:
        if self._has_finished:  # it waits for an order
            self._process.signal(signal.SIGKILL)
        status = await self._process.wait()
        return ExitCode.FINISHED if self._has_finished else status

    def read_bytes(self) -> int:
        return self._process.read_bytes()

    def error_tail(self) -> str:
        return self._process.error_tail()
