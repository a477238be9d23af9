"""Processes that start in no time: one waits, with its libraries loaded, for the next lease.

It has the environment of a lease from its start, and is used for no other one. It serves a single
lease, as every process does: its folder becomes that of the lease, and it may write to no other.
What it may read is what earlier leases of this node have read. There is one while fewer processes
run than the node has slots, so that the memory of a slot is enough for it. One that dies before it
has begun to work is replaced by a fresh process in the same lease, whose job sees nothing of it.
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

from services.trainer.adapters.processes import ProcessGroup, ProcessGroups
from services.trainer.ports import NO_ACCESS, Access, WorkProcess
from tunery.ranks.joining import VISIBLE
from tunery.runtime.telemetry.logs import log_event
from tunery.work.warm import BEGUN, WARM_MODULES, Order, WarmModule, encode_order

Environment: TypeAlias = Mapping[str, str]
Folders: TypeAlias = tuple[tuple[Path, ...], tuple[Path, ...]]
KNOWN_MAX: Final = 32  # folders
WAITING: Final = ("-m", "tunery.ml.warm")
LOG: Final = logging.getLogger(__name__)


class WarmProcesses:
    """Launcher of a node with so many slots.

    folder: working directory of the process that waits
    environment: of the first lease, most likely
    waiting: arguments that the interpreter is started with
    """

    def __init__(
        self,
        launcher: ProcessGroups,
        folder: Path,
        slots: int,
        environment: Environment,
        waiting: Sequence[str] = WAITING,
    ) -> None:
        self._launcher, self._folder, self._slots = launcher, folder, slots
        self._first, self._waiting = environment, waiting
        self._warm: ProcessGroup | None = None
        self._of_warm: Environment = {}
        self._access_of_warm = NO_ACCESS
        self._known = self._read_known()
        self._running = 0
        self._one_at_a_time = asyncio.Lock()

    async def start(
        self,
        argv: Sequence[str],
        environment: Environment,
        folder: Path,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        """Give the waiting process the order, or start one. Raises OSError."""

        def begin() -> Awaitable[WorkProcess]:
            return self._launcher.start(argv, environment, folder, access)

        async def end() -> None:
            self._running -= access.ranks
            sees = {VISIBLE: access.devices[0]} if access.devices else {}
            await self._refill({**environment, **sees})

        async with self._one_at_a_time:
            warm = self._take_warm(argv, environment, access)
            self._remember(access)
            if self._running + access.ranks >= self._slots:
                await self._dismiss()
            if warm is None:
                process = LeasedProcess(await begin(), None, end)
            else:
                move_into(self._folder, folder)
                module, spec = cast("WarmModule", argv[2]), argv[3]
                order = Order(module=module, spec=spec, folder=str(folder))
                warm.hand_over(encode_order(order))
                process = LeasedProcess(warm, begin, end)
            self._running += access.ranks
        return process

    async def sweep(self) -> int:
        """As `ProcessGroups.sweep`; then a process waits for the first lease."""
        async with self._one_at_a_time:
            await self._dismiss()
        killed = await self._launcher.sweep()
        await self._refill(self._first)
        return killed

    def _take_warm(
        self, argv: Sequence[str], environment: Environment, access: Access
    ) -> ProcessGroup | None:
        """The process that waits, where it can become the one that is asked for.

        What it may read was settled when it started, and so was its standard input.
        """
        warm, may = self._warm, self._access_of_warm
        fits = tuple(argv[:2]) == (sys.executable, "-m") and argv[2] in WARM_MODULES
        fits = fits and access.scores is None and access.ranks == 1
        fits = fits and access.elsewhere is None
        fits = fits and {*access.read} <= {*may.read} and {*access.write} <= {*may.write}
        if warm is None or warm.has_ended or not fits or dict(environment) != dict(self._of_warm):
            return None
        self._warm = None
        return warm

    async def _refill(self, environment: Environment) -> None:
        """Have a process wait for a lease with this environment, if a slot is free."""
        async with self._one_at_a_time:
            if self._running >= self._slots:
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

    def _read_known(self) -> Access:
        try:
            content = self._known_file.read_bytes()
            return Access(*msgspec.json.decode(content, type=Folders, dec_hook=_path))
        except (OSError, msgspec.MsgspecError):
            return NO_ACCESS

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
    end: called once, when no process is left
    """

    def __init__(
        self,
        process: WorkProcess,
        begin: Callable[[], Awaitable[WorkProcess]] | None,
        end: Callable[[], Awaitable[None]],
    ) -> None:
        self._process, self._begin, self._end = process, begin, end
        self._signals: list[int] = []
        self._has_ended = False

    @property
    def pid(self) -> int:
        return self._process.pid

    async def lines(self) -> AsyncIterator[bytes]:
        """As `WorkProcess.lines`; a line that says that work has begun is left out."""
        begin = self._begin
        async for line in self._process.lines():
            if begin is None:
                yield line
            elif line == BEGUN:
                begin = None
        if begin is None or self._signals:
            return
        status = await self._process.wait()
        log_event(LOG, logging.WARNING, "warm.died", status=status)
        self._process = await begin()
        for number in self._signals:  # that came meanwhile
            self._process.signal(number)
        async for line in self._process.lines():
            yield line

    def signal(self, number: int) -> None:
        self._signals.append(number)
        self._process.signal(number)

    async def wait(self) -> int:
        status = await self._process.wait()
        if not self._has_ended:
            self._has_ended = True
            await self._end()
        return status

    def read_bytes(self) -> int:
        return self._process.read_bytes()

    def error_tail(self) -> str:
        return self._process.error_tail()
