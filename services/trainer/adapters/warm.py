"""Processes that start in no time.

A training that has finished is kept for the evaluation of its job (`kept`). Where the operator
wants it, one more waits, with its libraries loaded, for the next lease. It has the environment of a
lease from its start, and is used for no other one: its folder becomes that of the lease, and it may
write to no other. What it may read is what earlier leases of this node have read. There is one
while fewer processes run than the node has slots, so that the memory of a slot is enough for it.

One that dies before it has begun to work is replaced by a fresh process in the same lease, whose
job sees nothing of it.
"""

import asyncio
import logging
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias, cast

import msgspec

from services.trainer.adapters.kept import KeptProcesses
from services.trainer.adapters.processes import ProcessGroup, ProcessGroups
from services.trainer.ports import NO_ACCESS, Access, WorkProcess
from tunery.ranks.launching import VISIBLE
from tunery.runtime.telemetry.logs import log_event
from tunery.work.exits import ExitCode
from tunery.work.warm import (
    BEGUN,
    ENDED,
    GOES_ON,
    SCORE,
    TRAIN,
    WARM_MODULES,
    Order,
    WarmModule,
    encode_order,
)

Environment: TypeAlias = Mapping[str, str]
Folders: TypeAlias = tuple[tuple[Path, ...], tuple[Path, ...]]
KNOWN_MAX: Final = 32  # folders
WAITING: Final = ("-m", "tunery.ml.warm")
LOG: Final = logging.getLogger(__name__)


class WarmProcesses:
    """Launcher of a node with so many slots.

    folder: working directory of the process that waits; those that are kept have theirs next to it
    environment: most likely environment of the first lease; None: no process waits for leases of
      any job
    waiting: arguments that the interpreter is started with
    known: what a process may read and write before any lease has said what it needs
    """

    def __init__(
        self,
        launcher: ProcessGroups,
        folder: Path,
        slots: int,
        environment: Environment | None,
        waiting: Sequence[str] = WAITING,
        known: Access = NO_ACCESS,
    ) -> None:
        self._launcher, self._folder, self._slots = launcher, folder, slots
        self._first, self._waiting = environment, waiting
        self._warm: ProcessGroup | None = None
        self._of_warm: Environment = {}
        self._access_of_warm = NO_ACCESS
        self._known = self._read_known(known)
        self._kept = KeptProcesses(folder.with_name("kept"))
        self._running = 0
        self._one_at_a_time = asyncio.Lock()

    async def start(
        self,
        argv: Sequence[str],
        environment: Environment,
        folder: Path,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        """Give a process that waits the order, or start one. Raises OSError."""
        goes_on = tuple(argv[1:3]) == ("-m", TRAIN) and bool(access.job)
        goes_on = goes_on and access.takes_orders
        if goes_on:
            argv = (*argv[:2], GOES_ON, *argv[3:])

        async def begin() -> WorkProcess:
            if goes_on:
                return await self._launcher.start_one(argv, environment, folder, access, reads=True)
            return await self._launcher.start(argv, environment, folder, access)

        async def end() -> None:
            self._running -= access.processes
            devices = access.ranks.devices if access.ranks is not None else ()
            await self._refill({**environment, VISIBLE: devices[0]} if devices else environment)

        def keep(process: WorkProcess) -> None:
            async def refill() -> None:
                await self._refill(environment)

            assert isinstance(process, ProcessGroup), "one process"  # noqa: S101  # `begin`
            self._kept.keep(process, folder, environment, access, refill)

        async with self._one_at_a_time:
            waiting = await self._take_kept(argv, environment, access)
            waiting = waiting or self._take_warm(argv, environment, access)
            self._remember(access)
            await self._kept.end_those_beyond(
                environment, self._slots - self._running - access.processes
            )
            if self._running + len(self._kept) + access.processes >= self._slots:
                await self._dismiss()
            if waiting is None:
                process = LeasedProcess(await begin(), None, end, keep if goes_on else None)
            else:
                warm, of_warm = waiting
                move_into(of_warm, folder)
                module, spec = cast("WarmModule", argv[2]), argv[3]
                order = Order(module=module, spec=spec, folder=str(folder))
                warm.hand_over(encode_order(order), is_last=not goes_on)
                process = LeasedProcess(warm, begin, end, keep if goes_on else None)
            self._running += access.processes
        return process

    async def sweep(self) -> int:
        """Kill leftovers as `ProcessGroups.sweep` does; then warm one up for the first lease."""
        async with self._one_at_a_time:
            await self._kept.close()
            await self._dismiss()
        killed = await self._launcher.sweep()
        await self._refill(self._first)
        return killed

    async def _take_kept(
        self, argv: Sequence[str], environment: Environment, access: Access
    ) -> tuple[ProcessGroup, Path] | None:
        """The process of the training of this job, where this starts its evaluation."""
        if not access.job or tuple(argv[1:3]) != ("-m", SCORE):
            return None
        return await self._kept.take(environment, access)

    def _take_warm(
        self, argv: Sequence[str], environment: Environment, access: Access
    ) -> tuple[ProcessGroup, Path] | None:
        """The process that waits and its folder, where it can become the one that is asked for.

        What it may read was settled when it started, and so was its standard input.
        """
        warm = self._warm
        fits = tuple(argv[:2]) == (sys.executable, "-m") and argv[2] in WARM_MODULES
        fits = fits and access.fits(self._access_of_warm)
        if warm is None or warm.has_ended or not fits or dict(environment) != dict(self._of_warm):
            return None
        self._warm = None
        return warm, self._folder

    async def _refill(self, environment: Environment | None) -> None:
        """Have a process wait for a lease with this environment, if a slot is free."""
        async with self._one_at_a_time:
            full = self._running + len(self._kept) >= self._slots
            if environment is None or self._first is None or full:
                return
            await self._dismiss()
            shutil.rmtree(self._folder, ignore_errors=True)
            try:
                self._folder.mkdir(mode=0o700, parents=True)
                argv, access = (sys.executable, *self._waiting), self._known
                self._warm = await self._launcher.start_one(
                    argv, environment, self._folder, access, reads=True
                )
                self._of_warm, self._access_of_warm = environment, access
            except OSError as error:  # each lease says itself what is wrong with the machine
                log_event(LOG, logging.WARNING, "warm.not_started", error)

    def _remember(self, access: Access) -> None:
        """Let the next process that waits have what leases have needed, also after a restart."""
        known = Access(
            tuple(dict.fromkeys((*access.read, *self._known.read)))[:KNOWN_MAX],
            tuple(dict.fromkeys((*access.write, *self._known.write)))[:KNOWN_MAX],
        )
        if known != self._known:
            self._known = known
            with suppress(OSError):
                self._known_file.write_bytes(
                    msgspec.json.encode((known.read, known.write), enc_hook=str)
                )

    def _read_known(self, otherwise: Access) -> Access:
        try:
            content = self._known_file.read_bytes()
            return Access(*msgspec.json.decode(content, type=Folders, dec_hook=_path))
        except (OSError, msgspec.MsgspecError):
            return otherwise

    @property
    def _known_file(self) -> Path:
        return self._folder.with_name(f"{self._folder.name}.json")

    async def _dismiss(self) -> None:
        warm, self._warm = self._warm, None
        if warm is not None:
            warm.signal(signal.SIGKILL)
            await warm.wait()


def move_into(waiting: Path, folder: Path) -> None:
    """Make the folder of a process that waits that of a lease, with all that the lease has there.

    It may write below its folder alone, wherever that is moved to. Raises OSError.
    """
    for entry in tuple(folder.iterdir()):
        entry.rename(waiting / entry.name)
    folder.rmdir()
    waiting.rename(folder)


def _path(_: type, text: str) -> Path:
    return Path(text)


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
        end: Callable[[], Awaitable[None]],
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
        log_event(LOG, logging.WARNING, "warm.died", status=status)
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
            await self._end()
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
