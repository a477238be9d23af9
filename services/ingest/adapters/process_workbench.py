"""Runs each piece of work in a process of its own: bounded, replaceable, without our secrets."""

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
    CheckAnswer,
    CheckTask,
    PrepareAnswer,
    PrepareTask,
    Refusal,
    Screen,
    Task,
)
from services.ingest.ports import Checked, LocalBase, Packed, WorkFailed, WorkRefused

MODULE: Final = "services.ingest.adapters.worker"
ERROR_BYTES_MAX: Final = 10_000
MEMORY_BYTES_MAX: Final = 4 * 1024**3
NO_SCREEN: Final = Screen()
# an exception's name, after the places it passed
KIND: Final = re.compile(r"^(?!Traceback)([A-Za-z_][A-Za-z0-9_.]{0,99})(?=:|$)", re.MULTILINE)
FRAME: Final = re.compile(r'^  File "([^"\n]+)", line (\d+)', re.MULTILINE)


class Workers:
    """Implements `Workbench`. The effect host bounds how many run at a time."""

    def __init__(
        self,
        *,
        work_ms_max: Ms,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        screen: Screen = NO_SCREEN,
    ) -> None:
        self._work_ms_max = work_ms_max
        self._memory_bytes_max = memory_bytes_max
        self._screen = screen

    async def check(
        self, path: Path, bases: tuple[LocalBase, ...], rows_max: int | None = None
    ) -> Checked:
        task = CheckTask(path=str(path), bases=bases, screen=self._screen, rows_max=rows_max)
        answer = await self._run(task, path.parent)
        if not isinstance(answer, CheckAnswer):
            raise WorkFailed(f"the worker answered with {type(answer).__name__}")
        return answer.checked

    async def prepare(
        self,
        training: Path,
        validation: Path | None,
        base: LocalBase,
        spec: PrepareSpec,
        folder: Path,
        work: Path,
    ) -> Packed:
        task = PrepareTask(
            training=str(training),
            validation=None if validation is None else str(validation),
            base=base,
            spec=spec,
            folder=str(folder),
            work=str(work),
            screen=self._screen,
        )
        answer = await self._run(task, training.parent)
        match answer:
            case PrepareAnswer():
                return answer.packed
            case Refusal():
                raise WorkRefused(answer.message)
            case _:
                raise WorkFailed(f"the worker answered with {type(answer).__name__}")

    async def _run(self, task: Task, folder: Path) -> Answer:
        """The worker holds our end of its stdin: it leaves when we do, however we do."""
        (folder / TASK_FILE).write_bytes(msgspec.json.encode(task))
        (folder / ANSWER_FILE).unlink(missing_ok=True)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            MODULE,
            str(folder),
            str(self._memory_bytes_max),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment(),
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
            await process.wait()
        if code != 0:
            raise WorkFailed(_ending(code, errors))
        answer: Answer = msgspec.json.decode((folder / ANSWER_FILE).read_bytes(), type=Answer)
        return answer


def environment() -> dict[str, str]:
    """Ours without settings: a worker needs no passwords to read rows."""
    return {name: text for name, text in os.environ.items() if not name.startswith("TUNERY_")}


async def _tail(process: asyncio.subprocess.Process) -> str:
    """The end of what the worker wrote to stderr; everything is read, so it never blocks."""
    kept = b""
    if process.stderr is not None:
        while chunk := await process.stderr.read(65_536):
            kept = (kept + chunk)[-ERROR_BYTES_MAX:]
    return kept.decode("utf-8", "replace").strip()


def _ending(code: int, errors: str) -> str:
    """What goes on the log: kind and place of the error, never its text, which may quote a row.

    Of the first error: others may follow from it, as when there is no memory left to clean up.
    """
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    kind = KIND.search(errors)
    frames = FRAME.findall(errors, 0, kind.start() if kind else 0)
    what = kind[1] if kind else "it named no error"
    where = f" at {Path(frames[-1][0]).name}:{frames[-1][1]}" if kind and frames else ""
    return f"the worker {how}: {what}{where}"
