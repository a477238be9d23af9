"""A service's process and the lines it logs."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
WAIT_S: Final = 180  # for what is slow beside other work


class Process:
    """A running process; `lines` are what it has logged."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())
        self._grew = asyncio.Condition()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self._grew:
                self.lines.append(json.loads(line))
                self._grew.notify_all()

    async def await_log_line(self, event: str, **fields: str) -> dict[str, Any]:
        """The newest line of this event with these fields; waits until there is one."""
        wanted = {"event": event, **fields}

        def matching() -> list[dict[str, Any]]:
            return [line for line in self.lines if wanted.items() <= line.items()]

        try:
            async with asyncio.timeout(WAIT_S), self._grew:
                await self._grew.wait_for(matching)
        except TimeoutError:
            raise AssertionError(f"no {wanted} in {WAIT_S} s, but {self.lines[-40:]}") from None
        return matching()[-1]

    async def end(self, number: signal.Signals) -> int:
        """Send a signal that ends the process; returns its exit status."""
        self.process.send_signal(number)
        status = await asyncio.wait_for(self.process.wait(), WAIT_S)
        await self._reading
        return status


@asynccontextmanager
async def python_process(environment: Mapping[str, str], *arguments: str) -> AsyncIterator[Process]:
    """Python with these arguments, in the repository's root; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    running = Process(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            await running.end(signal.SIGKILL)
