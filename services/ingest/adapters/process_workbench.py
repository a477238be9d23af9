"""Runs each task in its own process, with limits and without the service's secrets."""

import contextlib
import os
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
from tunery.confinement.policy import ConfinementPolicy
from tunery.confinement.taking import opened_within
from tunery.data.mixing import MixedSource
from tunery.data.preparing import PreparedDirectory
from tunery.platform.confined_workers import ConfinedWorkers, Work
from tunery.work.own_chat import OwnChat

MODULE: Final = "services.ingest.adapters.worker"
MEMORY_BYTES_MAX: Final = 4 * 1024**3
FILE_BYTES_MAX: Final = 64 * 1024**3  # of each file that a worker writes
CPUS_MAX: Final = 64  # that a worker computes on at once
CONFINED: Final = Confinement()
NO_SCREENING: Final = ScreeningTask()
NICENESS: Final = 5  # at least: decisions have priority over the processing of rows


class ProcessWorkbench:
    """Implements `Workbench`. The effect host limits how many tasks run at a time."""

    def __init__(
        self,
        *,
        work_ms_max: Ms,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        screen: ScreeningTask = NO_SCREENING,
        confinement: Confinement = CONFINED,
        scratch: Path | None = None,
        resting_max: int | None = None,
    ) -> None:
        """Set up confined workers.

        scratch: folder of all folders of tasks; None: each worker starts anew
        resting_max: tasks that rest at the same time, each in a slot of the effect host
        """
        self._work_ms_max = work_ms_max
        self._memory_bytes_max = memory_bytes_max
        self._screen = screen
        self._workers = ConfinedWorkers(
            MODULE,
            confinement=confinement,
            environment=environment(),
            read=() if screen.benchmarks is None else (screen.benchmarks,),
            write=() if scratch is None else (str(scratch),),
            memory_bytes_max=memory_bytes_max,
            forks=scratch is not None,
            resting_max=resting_max,
        )

    async def check(
        self,
        path: Path,
        bases: tuple[LocalBase, ...],
        rows_max: int | None = None,
        niceness: int | None = None,
        tenant: str = "",
    ) -> CheckedFile:
        """Check a file in a worker process. Raises `WorkFailed` when the worker ends early."""
        task = CheckTask(path=str(path), bases=bases, screen=self._screen, rows_max=rows_max)
        answer = await self._run(task, path.parent, bases, niceness=niceness or 0, tenant=tenant)
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
        chat: OwnChat | None = None,
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
            chat=chat,
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
        self,
        task: Task,
        folder: Path,
        bases: tuple[LocalBase, ...],
        *further: Path,
        niceness: int = 0,
        tenant: str = "",
    ) -> Answer:
        """Run a worker on a task in a folder. It exits when this process ends, in any way.

        further: folders that it may write to as well
        Raises `WorkFailed` when it ends early or takes too long.
        """
        (folder / TASK_FILE).write_bytes(msgspec.json.encode(task))
        (folder / ANSWER_FILE).unlink(missing_ok=True)
        work = Work(
            arguments=(str(folder), str(self._memory_bytes_max)),
            folders=tuple(base.path for base in bases),
            policy=self._policy((folder, *further)),
            tenant=tenant,
            niceness=niceness,
            niceness_min=NICENESS,
            ms_max=self._work_ms_max,
            environment=private_environment(folder),
        )
        try:
            finished = await self._workers.run(work)
        except TimeoutError as error:
            raise WorkFailed(f"the work took more than {self._work_ms_max} ms") from error
        if finished.code != 0:
            raise WorkFailed(finished.describe())
        with opened_within(folder, Path(ANSWER_FILE)) as path:
            answer: Answer = msgspec.json.decode(path.read_bytes(), type=Answer)
        return answer

    def _policy(self, folders: tuple[Path, ...]) -> ConfinementPolicy:
        benchmarks = self._screen.benchmarks
        return ConfinementPolicy(
            read=() if benchmarks is None else (benchmarks,),
            write=tuple(map(str, folders)),
            file_bytes_max=FILE_BYTES_MAX,
            cpu_s_max=CPUS_MAX * self._work_ms_max // 1_000 + 1,
        )


def environment() -> dict[str, str]:
    """The environment without settings: a worker needs no passwords to read rows."""
    return {name: text for name, text in os.environ.items() if not name.startswith("TUNERY_")}
