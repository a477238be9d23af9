"""Process groups on Linux, found again after a crash by a mark in their environment.

A pid file would have a gap between the start of a process and its writing; the mark has none.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.trainer.adapters.forks import LINE_BYTES_MAX, ForkedProcess, WorkForks
from services.trainer.ports import NO_ACCESS, Access, WorkProcess
from tunery.confinement.confined import Confinement, private_environment, shared_namespaces
from tunery.confinement.namespaces import SHARED_MEMORY
from tunery.confinement.policy import ConfinementPolicy, Network, with_links
from tunery.platform.local_socket import connect_to
from tunery.ranks.group import RankGroup
from tunery.ranks.launching import RankLayout
from tunery.runtime.telemetry.logs import log_event
from tunery.work.exits import WorkError

TAIL_BYTES: Final = 4_000
SWEEP_ROUNDS_MAX: Final = 100
SWEEP_PAUSE_S: Final = 0.05
MARK: Final = "TUNERY_NODE_MARK"
ERRORS: Final = "stderr.log"  # of the first rank; those of others have their number before it
ERRORS_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
LOG: Final = logging.getLogger(__name__)


class ProcessGroup:
    """A started process, leader of its own session and group.

    errors: descriptor of its standard error's file, which is read and closed at its end
    """

    def __init__(self, process: asyncio.subprocess.Process | ForkedProcess, errors: int) -> None:
        self._process = process
        self._errors: int | None = errors
        self._error_tail = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """True once the process was reaped."""
        return self._process.returncode is not None

    def hand_over(self, order: bytes) -> None:
        """Give its standard input a line, and forget what it has written to its standard error.

        A dead process ignores it.
        """
        stream = self._process.stdin
        assert stream is not None, "started with a pipe"  # noqa: S101  # set in start()
        if self._errors is not None:
            os.ftruncate(self._errors, 0)
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
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            with suppress(ProcessLookupError):  # a fork that has no group yet
                self._process.send_signal(number)

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
        """Return the bytes that the kernel counts as read: by calls, and for mapped files.

        0: the process has ended.
        """
        with suppress(OSError, ValueError):  # it has ended
            lines = Path(f"/proc/{self.pid}/io").read_text().splitlines()
            counts = dict(line.split(": ", 1) for line in lines)
            return int(counts["rchar"]) + int(counts["read_bytes"])
        return 0

    def error_tail(self) -> str:
        return self._error_tail


@dataclass(frozen=True)
class Walls:
    """Confinement of the processes of a node."""

    confinement: Confinement
    # whether they compute on accelerators, whose libraries start compilers
    has_devices: bool = False
    memory_bytes_max: int | None = None  # limit of each process; None: unlimited

    def shared(self, ranks: RankLayout) -> tuple[int, ...]:
        """Namespaces for ranks to share, which the caller closes; none where that is not possible.

        Then they are restricted to ports of connections (`ConfinementPolicy.network`).
        """
        if self.confinement.mode == "off":
            return ()
        try:
            return shared_namespaces("fabric" if ranks.spans_nodes else "loopback")
        except OSError as error:
            log_event(LOG, logging.WARNING, "ranks.namespaces_missing", why=error)
            return ()

    def policy(
        self, folder: Path, access: Access, namespaces: tuple[int, ...] = ()
    ) -> ConfinementPolicy:
        """Return the rights of a process that works in a folder. namespaces: that ranks share."""
        network: Network = "none"
        if access.ranks is not None:
            network = "fabric" if access.ranks.spans_nodes else "loopback"
        return ConfinementPolicy(
            read=with_links(access.read),
            write=tuple(map(str, (folder, *access.write))),
            accelerators=self.has_devices,
            links=tuple(map(str, access.links)),
            sockets=(str(folder),) if access.serves else (),
            network=network,
            namespaces=namespaces,
            processes=self.has_devices or access.serves,
            memory_bytes_max=self.memory_bytes_max,
        )


class ProcessGroups:
    """Starts and finds this node's processes.

    mark: distinguishes them from those of others
    walls: what confines them; None: nothing does
    forks: have the libraries of work loaded; None: each process loads its own
    """

    def __init__(
        self, mark: str, walls: Walls | None = None, forks: WorkForks | None = None
    ) -> None:
        self._mark, self._walls, self._forks = mark, walls, forks

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        """Start a process, or its ranks, in a folder, which gets their standard error.

        Ranks of a lease reach each other, and nothing else. Raises OSError, and
        WorkError("bad_node") for a folder that ranks would not see.
        """
        layout = access.ranks
        if layout is None:
            return await self.start_one(argv, environment, folder, access)
        walls, confines = self._walls, False
        ranks: list[ProcessGroup] = []
        with ExitStack() as opened:
            namespaces: tuple[int, ...] = ()
            if walls is not None:
                namespaces = await asyncio.to_thread(walls.shared, layout)
                confines = walls.confinement.mode != "off"
            for descriptor in namespaces:
                opened.callback(os.close, descriptor)
            if namespaces and folder.is_relative_to(SHARED_MEMORY):
                message = (
                    f"{folder} is hidden from ranks, which have a {SHARED_MEMORY} of their own"
                )
                advice = f"Tell the operator: set TUNERY_NODE_WORK_DIR outside of {SHARED_MEMORY}."
                raise WorkError("bad_node", message, advice)
            try:
                for number in layout.here:
                    own = layout.environment(
                        number, folder, shares_memory=bool(namespaces) or not confines
                    )
                    rank = await self.start_one(
                        *(argv, environment, folder, access),
                        of_rank=own,
                        errors=f"{number}.{ERRORS}" if ranks else ERRORS,
                        namespaces=namespaces,
                    )
                    ranks.append(rank)
            except BaseException:
                for rank in ranks:
                    rank.signal(signal.SIGKILL)
                    await rank.wait()
                raise
        return RankGroup(ranks, layout.devices, first=layout.here.start, count=layout.count)

    async def start_one(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        access: Access = NO_ACCESS,
        *,
        reads: bool = False,
        errors: str = ERRORS,
        of_rank: Mapping[str, str] | None = None,
        namespaces: tuple[int, ...] = (),
    ) -> ProcessGroup:
        """Start a single process, or fork it. Raises OSError.

        reads: whether it has an order to read from its standard input
        errors: name of the file that its standard error goes to
        of_rank: variables of it alone
        namespaces: descriptors of those that it shares with other ranks
        """
        own = {**environment, **(of_rank or {}), MARK: self._mark}
        confinement, policy = Confinement("off"), ConfinementPolicy()
        if self._walls is not None:
            confinement = self._walls.confinement
            policy = self._walls.policy(folder, access, namespaces)
            own |= private_environment(folder)
        with ExitStack() as opened:
            stdin: int = asyncio.subprocess.PIPE if reads else asyncio.subprocess.DEVNULL
            if access.scores is not None:
                stdin = opened.enter_context(connect_to(access.scores)).fileno()
            stderr = os.open(folder / errors, ERRORS_FLAGS, 0o600)
            opened.callback(os.close, stderr)
            process: asyncio.subprocess.Process | ForkedProcess | None = None
            if self._forks is not None and self._forks.can_start(argv, environment):
                rights = confinement.rights(policy)
                process = await self._forks.start(
                    argv, own, folder, rights, (stdin, stderr), namespaces
                )
            if process is None:
                process = await asyncio.create_subprocess_exec(
                    *confinement.command(argv, policy),
                    stdin=stdin,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=stderr,
                    cwd=folder,
                    env=own,
                    limit=LINE_BYTES_MAX,
                    start_new_session=True,
                    pass_fds=namespaces,
                )
            return ProcessGroup(process, os.dup(stderr))

    async def sweep(self) -> int:
        """Kill all processes with the mark; how many there were. Raises TimeoutError."""
        if self._forks is not None:
            self._forks.close()
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
