"""Process groups on Linux, found again after a crash by a mark in their environment.

A pid file would have a gap between the start of a process and its writing; the mark has none.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.trainer.ports import NO_ACCESS, Access, WorkProcess
from tunery.confinement.confined import Confinement, private_environment
from tunery.confinement.policy import DEVICES, ConfinementPolicy, accelerator_devices, with_links
from tunery.ranks.group import RankGroup
from tunery.ranks.joining import VISIBLE, joined
from tunery.runtime.local_socket import connect_to

LINE_BYTES_MAX: Final = 1 << 20
TAIL_BYTES: Final = 4_000
SWEEP_ROUNDS_MAX: Final = 100
SWEEP_PAUSE_S: Final = 0.05
MARK: Final = "TUNERY_NODE_MARK"
ERRORS: Final = "stderr.log"  # of the first rank; those of others have their number before it
ERRORS_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class ProcessGroup:
    """A started process, leader of its own session and group.

    errors: descriptor of its standard error's file, which is read and closed at its end
    """

    def __init__(self, process: asyncio.subprocess.Process, errors: int) -> None:
        self._process = process
        self._errors: int | None = errors
        self._error_tail = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether its end is known already."""
        return self._process.returncode is not None

    def hand_over(self, order: bytes) -> None:
        """Give its standard input the only line that it reads.

        One that has died meanwhile says nothing to it.
        """
        stream = self._process.stdin
        assert stream is not None, "started with a pipe"  # noqa: S101  # set in start()
        stream.write(order)
        stream.close()

    async def lines(self) -> AsyncIterator[bytes]:
        stream = self._process.stdout
        assert stream is not None, "started with a pipe"  # noqa: S101  # set in start()
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the limit: dropped, the next one is whole again
                continue
            if not line:
                return
            yield line

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    async def wait(self) -> int:
        status = await self._process.wait()
        self.signal(signal.SIGKILL)  # children it may have left in its group
        if self._errors is not None:
            start = max(0, os.fstat(self._errors).st_size - TAIL_BYTES)
            tail = os.pread(self._errors, TAIL_BYTES, start)
            self._error_tail = tail.decode("utf-8", "replace")
            os.close(self._errors)
            self._errors = None
        return status

    def read_bytes(self) -> int:
        """By the kernel's count: calls that read, and pages that mapped files brought in."""
        with suppress(OSError, ValueError):  # it has ended
            lines = Path(f"/proc/{self.pid}/io").read_text().splitlines()
            counts = dict(line.split(": ", 1) for line in lines)
            return int(counts["rchar"]) + int(counts["read_bytes"])
        return 0

    def error_tail(self) -> str:
        return self._error_tail


@dataclass(frozen=True)
class Walls:
    """What confines the processes of a node.

    has_devices: whether they compute on accelerators, whose libraries start compilers
    memory_bytes_max: of one process; None: as much as there is
    """

    confinement: Confinement
    has_devices: bool = False
    memory_bytes_max: int | None = None

    def enclose(self, argv: Sequence[str], folder: Path, access: Access) -> tuple[str, ...]:
        """The arguments that start a confined process."""
        policy = ConfinementPolicy(
            read=with_links(access.read),
            write=tuple(map(str, (folder, *access.write))),
            devices=(*DEVICES, *(accelerator_devices() if self.has_devices else ())),
            links=tuple(map(str, access.links)),
            sockets=(str(folder),) if access.serves else (),
            processes=self.has_devices or access.serves,
            memory_bytes_max=self.memory_bytes_max,
        )
        return self.confinement.command(argv, policy)


class ProcessGroups:
    """Starts and finds this node's processes.

    mark: distinguishes them from those of others
    walls: what confines them; None: nothing does
    """

    def __init__(self, mark: str, walls: Walls | None = None) -> None:
        self._mark, self._walls = mark, walls

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        """Start a process in a folder, which gets its standard error; or its ranks, likewise.

        Each rank is confined as a process that works alone, and sees its own device alone. Raises
        OSError.
        """
        elsewhere = access.elsewhere
        if access.ranks == 1 and elsewhere is None:
            return await self.start_one(argv, environment, folder, access)
        here = range(access.ranks) if elsewhere is None else elsewhere.here
        count = access.ranks if elsewhere is None else elsewhere.count
        devices = access.devices[here.start : here.stop]
        ranks: list[ProcessGroup] = []
        try:
            with joined(count, keeper=elsewhere) as every:
                for number, descriptors in zip(here, every, strict=True):
                    own = (*argv, str(number), *map(str, descriptors))
                    errors = f"{number}.{ERRORS}" if ranks else ERRORS
                    sees = {VISIBLE: access.devices[number]} if devices else {}
                    rank = await self.start_one(
                        *(own, {**environment, **sees}, folder, access),
                        errors=errors,
                        descriptors=descriptors,
                    )
                    ranks.append(rank)
        except BaseException:
            for rank in ranks:
                rank.signal(signal.SIGKILL)
                await rank.wait()
            raise
        return RankGroup(ranks, devices, first=here.start, count=count)

    async def start_one(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        access: Access = NO_ACCESS,
        *,
        reads: bool = False,
        errors: str = ERRORS,
        descriptors: Sequence[int] = (),
    ) -> ProcessGroup:
        """Start a single process. Raises OSError.

        reads: whether it has an order to read from its standard input
        errors: name of the file that its standard error goes to
        descriptors: that it gets open
        """
        own = {MARK: self._mark}
        if self._walls is not None:
            argv = self._walls.enclose(argv, folder, access)
            own |= private_environment(folder)
        with ExitStack() as opened:
            stdin: int = asyncio.subprocess.PIPE if reads else asyncio.subprocess.DEVNULL
            if access.scores is not None:
                stdin = opened.enter_context(connect_to(access.scores)).fileno()
            stderr = os.open(folder / errors, ERRORS_FLAGS, 0o600)
            opened.callback(os.close, stderr)
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                cwd=folder,
                env={**environment, **own},
                limit=LINE_BYTES_MAX,
                start_new_session=True,
                pass_fds=descriptors,
            )
            return ProcessGroup(process, os.dup(stderr))

    async def sweep(self) -> int:
        """Kill all processes with the mark; how many there were. Raises TimeoutError."""
        killed: set[int] = set()
        for _ in range(SWEEP_ROUNDS_MAX):
            alive = find_marked(self._mark)
            if not alive:
                return len(killed)
            killed |= alive
            for pid in alive:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(SWEEP_PAUSE_S)
        raise TimeoutError(f"processes of an earlier agent do not die: {sorted(alive)}")


def find_marked(mark: str) -> set[int]:
    """Ids of all processes with this mark but our own."""
    entry_of_mark = f"{MARK}={mark}".encode()
    pids = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):  # ended meanwhile, or of another user
                if entry_of_mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.add(int(entry.name))
    return pids
