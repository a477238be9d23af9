"""Processes whose training has finished, kept for the evaluation of the same job.

Such a process has its libraries and the base model loaded. It serves that job alone, and keeps the
confinement that it was started with. It has freed what the training needed, and its slots are
free: it ends where they are needed, and in any case after a while.
"""

import asyncio
import logging
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from services.trainer.adapters.processes import ERRORS, ProcessGroup
from services.trainer.ports import Access
from tunery.confinement.confined import TEMPORARY
from tunery.ranks.launching import VISIBLE
from tunery.runtime.telemetry.logs import log_event
from tunery.work.orders import WAIT_S

GRACE_S: Final = 5  # after which a process that has not left by itself is killed
OWN: Final = frozenset({TEMPORARY, ERRORS})  # entries of a lease's folder that go with the process
LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptProcess:
    """A process that waits in `folder`; `end` frees what it has when it ends instead."""

    process: ProcessGroup
    folder: Path
    environment: Mapping[str, str]
    access: Access
    end: asyncio.Task[None]


class KeptProcesses:
    """Kept processes of one node, one for a job at most, each in a folder below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count(1)
        self._of_jobs: dict[str, KeptProcess] = {}

    def __len__(self) -> int:
        return len(self._of_jobs)

    def keep(
        self,
        process: ProcessGroup,
        folder: Path,
        environment: Mapping[str, str],
        access: Access,
    ) -> None:
        """Keep a process whose training has finished. Raises OSError where its folder can't move.

        What the training has left stays at the path of its folder, out of the process's reach.
        """
        own = self._folder / str(next(self._numbers))
        leave(folder, own)

        async def end() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S + GRACE_S):
                    await process.wait()
            await self._end(kept)

        kept = KeptProcess(process, own, environment, access, asyncio.create_task(end()))
        former = self._of_jobs.get(access.job)
        self._of_jobs[access.job] = kept
        if former is not None:  # of an earlier attempt: its own task ends it and counts its slot
            former.process.signal(signal.SIGKILL)
        log_event(LOG, logging.INFO, "process.kept", pid=process.pid)

    async def take(
        self, environment: Mapping[str, str], access: Access
    ) -> tuple[ProcessGroup, Path] | None:
        """The process of the training of this job, and its folder; None: start a fresh one."""
        kept = self._of_jobs.get(access.job)
        if kept is None:
            return None
        fits = access.fits(kept.access) and dict(environment) == dict(kept.environment)
        if kept.process.has_ended or not fits:
            await self._dismiss(kept)
            return None
        del self._of_jobs[access.job]
        kept.end.cancel()
        return kept.process, kept.folder

    async def end_those_beyond(self, environment: Mapping[str, str], count_max: int) -> None:
        """End processes on the devices of a new lease, and the oldest beyond `count_max`."""
        devices = _devices(environment)
        for kept in tuple(self._of_jobs.values()):
            if len(self) > max(0, count_max) or devices & _devices(kept.environment):
                await self._dismiss(kept)

    async def close(self) -> None:
        """End all, and delete what an earlier agent has left."""
        for kept in tuple(self._of_jobs.values()):
            await self._dismiss(kept)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _dismiss(self, kept: KeptProcess) -> None:
        kept.end.cancel()
        await self._end(kept)

    async def _end(self, kept: KeptProcess) -> None:
        if not kept.process.has_ended:
            kept.process.signal(signal.SIGKILL)
        await kept.process.wait()
        shutil.rmtree(kept.folder, ignore_errors=True)
        if self._of_jobs.get(kept.access.job) is kept:
            del self._of_jobs[kept.access.job]
            log_event(LOG, logging.INFO, "process.let_go", pid=kept.process.pid)


def leave(folder: Path, own: Path) -> None:
    """Give a process its folder at another path, and leave what it has made there. Raises OSError.

    It may write below that folder alone, wherever that is moved to.
    """
    own.parent.mkdir(mode=0o700, exist_ok=True)
    left = own.with_suffix(".left")
    left.mkdir(mode=0o700)
    folder.rename(own)
    left.rename(folder)
    for entry in tuple(own.iterdir()):
        if entry.name not in OWN:
            entry.rename(folder / entry.name)


def _devices(environment: Mapping[str, str]) -> set[str]:
    return set(filter(None, environment.get(VISIBLE, "").split(",")))
