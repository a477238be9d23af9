"""Runs each task in a process of its own, with limits and without the service's secrets."""

import asyncio
import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Final

import msgspec

from schemas.dataset import PrepareSpec
from schemas.units import Ms
from services.ingest.adapters.tasks import (
    ANSWER_FILE,
    TASK_FILE,
    Answer,
    CheckTask,
    MixedFilePath,
    PreparedAnswer,
    PrepareTask,
    RefusedAnswer,
    ScreeningTask,
    Task,
)
from services.ingest.ports import CheckedFile, LocalBase, WorkFailed, WorkRefused
from tunery.confinement.confined import Confinement, private_environment
from tunery.confinement.policy import ConfinementPolicy, with_links
from tunery.confinement.taking import opened_within
from tunery.data.mixing import MixedSource
from tunery.data.preparing import PreparedDirectory

MODULE: Final = "services.ingest.adapters.worker"
ERROR_BYTES_MAX: Final = 10_000
KILL_MS_MAX: Final[Ms] = 5_000  # for a killed process to end
MEMORY_BYTES_MAX: Final = 4 * 1024**3
FILE_BYTES_MAX: Final = 64 * 1024**3  # of each file that a worker writes
CPUS_MAX: Final = 64  # that a worker computes on at once
CONFINED: Final = Confinement()
NO_SCREENING: Final = ScreeningTask()
# the name of an exception, after the lines of its traceback
EXCEPTION: Final = re.compile(r"^(?!Traceback)([A-Za-z_][A-Za-z0-9_.]{0,99})(?=:|$)", re.MULTILINE)
FRAME: Final = re.compile(r'^  File "([^"\n]+)", line (\d+)', re.MULTILINE)


class ProcessWorkbench:
    """Implements `Workbench`. The effect host limits how many tasks run at a time."""

    def __init__(
        self,
        *,
        work_ms_max: Ms,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        screen: ScreeningTask = NO_SCREENING,
        confinement: Confinement = CONFINED,
    ) -> None:
        self._work_ms_max = work_ms_max
        self._memory_bytes_max = memory_bytes_max
        self._screen = screen
        self._confinement = confinement

    async def check(
        self, path: Path, bases: tuple[LocalBase, ...], rows_max: int | None = None
    ) -> CheckedFile:
        """Check a file in a worker process. Raises `WorkFailed` when the worker ends early."""
        task = CheckTask(path=str(path), bases=bases, screen=self._screen, rows_max=rows_max)
        answer = await self._run(task, path.parent, bases)
        if not isinstance(answer, CheckedFile):
            raise WorkFailed(f"the worker answered with {type(answer).__name__}")
        return answer

    async def prepare(
        self,
        training: Path,
        validation: Path | None,
        base: LocalBase,
        spec: PrepareSpec,
        folder: Path,
        work: Path,
        mixture: tuple[MixedSource, ...] = (),
    ) -> PreparedDirectory:
        """Prepare files in a worker process.

        Raises `WorkFailed` when the worker ends early, `WorkRefused` when it refuses the rows.
        """
        task = PrepareTask(
            training=str(training),
            validation=None if validation is None else str(validation),
            base=base,
            spec=spec,
            folder=str(folder),
            work=str(work),
            screen=self._screen,
            mixture=tuple(MixedFilePath(str(file.path), file.weight_ppm) for file in mixture),
        )
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        answer = await self._run(task, training.parent, (base,), work)
        with contextlib.suppress(OSError):  # what is left of it is empty
            work.rmdir()
        match answer:
            case PreparedAnswer():
                return PreparedDirectory(folder, answer.manifest, answer.reused)
            case RefusedAnswer():
                raise WorkRefused(answer.message)
            case _:
                raise WorkFailed(f"the worker answered with {type(answer).__name__}")

    async def _run(
        self, task: Task, folder: Path, bases: tuple[LocalBase, ...], *further: Path
    ) -> Answer:
        """Run the worker on a task in a folder. It exits when this process ends, in any way.

        further: folders that it may write to as well
        Raises `WorkFailed` when it ends early or takes too long.
        """
        (folder / TASK_FILE).write_bytes(msgspec.json.encode(task))
        (folder / ANSWER_FILE).unlink(missing_ok=True)
        own = private_environment(folder)
        command = (sys.executable, "-m", MODULE, str(folder), str(self._memory_bytes_max))
        process = await asyncio.create_subprocess_exec(
            *self._confinement.command(command, self._policy((folder, *further), bases)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**environment(), **own},
        )
        try:
            async with asyncio.timeout(self._work_ms_max / 1000):
                errors = await _tail(process)
                code = await process.wait()
        except TimeoutError as error:
            raise WorkFailed(f"the work took more than {self._work_ms_max} ms") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            with contextlib.suppress(TimeoutError):  # one that the kernel holds ends later
                await asyncio.wait_for(process.wait(), KILL_MS_MAX / 1_000)
        if code != 0:
            raise WorkFailed(_describe_exit(code, errors))
        with opened_within(folder, Path(ANSWER_FILE)) as path:
            answer: Answer = msgspec.json.decode(path.read_bytes(), type=Answer)
        return answer

    def _policy(self, folders: tuple[Path, ...], bases: tuple[LocalBase, ...]) -> ConfinementPolicy:
        benchmarks = self._screen.benchmarks
        return ConfinementPolicy(
            read=(
                *with_links(Path(base.path) for base in bases),
                *(() if benchmarks is None else (benchmarks,)),
            ),
            write=tuple(map(str, folders)),
            file_bytes_max=FILE_BYTES_MAX,
            cpu_s_max=CPUS_MAX * self._work_ms_max // 1_000 + 1,
        )


def environment() -> dict[str, str]:
    """The environment without settings: a worker needs no passwords to read rows."""
    return {name: text for name, text in os.environ.items() if not name.startswith("TUNERY_")}


async def _tail(process: asyncio.subprocess.Process) -> str:
    """The last bytes that the worker wrote to stderr. All is read, so the worker never blocks."""
    tail = b""
    if process.stderr is not None:
        while chunk := await process.stderr.read(65_536):
            tail = (tail + chunk)[-ERROR_BYTES_MAX:]
    return tail.decode("utf-8", "replace").strip()


def _describe_exit(code: int, errors: str) -> str:
    """Describe the first exception by name and line, without its text, which may quote a row.

    Later exceptions may follow from the first one, as when no memory is left to clean up.
    """
    ending = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    exception = EXCEPTION.search(errors)
    frames = FRAME.findall(errors, 0, exception.start() if exception else 0)
    name = exception[1] if exception else "it reported no exception"
    where = f" at {Path(frames[-1][0]).name}:{frames[-1][1]}" if exception and frames else ""
    return f"the worker {ending}: {name}{where}"
