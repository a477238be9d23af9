"""Process groups on Linux, found again after a crash by a mark in their environment.

A pid file would have a gap between the start of a process and its writing; the mark has none.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

LINE_BYTES_MAX: Final = 1 << 20
TAIL_BYTES: Final = 4_000
SWEEP_ROUNDS_MAX: Final = 100
SWEEP_PAUSE_S: Final = 0.05
MARK: Final = "TUNERY_NODE_MARK"
ERRORS: Final = "stderr.log"


class ProcessGroup:
    """A started process, leader of its own session and group."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process = process
        self._errors = errors

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether its end is known already."""
        return self._process.returncode is not None

    def hand_over(self, order: bytes, errors: Path) -> None:
        """Give its standard input the only line that it reads, and know its new standard error.

        One that has died meanwhile says nothing to it.
        """
        stream = self._process.stdin
        assert stream is not None, "started with a pipe"  # noqa: S101  # set in start()
        self._errors = errors
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
        return status

    def read_bytes(self) -> int:
        """By the kernel's count: calls that read, and pages that mapped files brought in."""
        with suppress(OSError, ValueError):  # it has ended
            lines = Path(f"/proc/{self.pid}/io").read_text().splitlines()
            counts = dict(line.split(": ", 1) for line in lines)
            return int(counts["rchar"]) + int(counts["read_bytes"])
        return 0

    def error_tail(self) -> str:
        with suppress(OSError), self._errors.open("rb") as file:
            file.seek(max(0, self._errors.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
        return ""


class ProcessGroups:
    """Starts and finds this node's processes; `mark` distinguishes them from those of others."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        reads: bool = False,
    ) -> ProcessGroup:
        """Start a process in a folder, which gets its standard error. Raises OSError.

        reads: whether it has an order to read from its standard input
        """
        errors = folder / ERRORS
        with errors.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE if reads else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                cwd=folder,
                env={**environment, MARK: self._mark},
                limit=LINE_BYTES_MAX,
                start_new_session=True,
            )
        return ProcessGroup(process, errors)

    async def sweep(self) -> int:
        """Kill all processes with the mark; how many there were. Raises TimeoutError."""
        killed: set[int] = set()
        for _ in range(SWEEP_ROUNDS_MAX):
            alive = _find_marked(self._mark)
            if not alive:
                return len(killed)
            killed |= alive
            for pid in alive:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(SWEEP_PAUSE_S)
        raise TimeoutError(f"processes of an earlier agent do not die: {sorted(alive)}")


def _find_marked(mark: str) -> set[int]:
    entry_of_mark = f"{MARK}={mark}".encode()
    pids = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):  # ended meanwhile, or of another user
                if entry_of_mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.add(int(entry.name))
    return pids
