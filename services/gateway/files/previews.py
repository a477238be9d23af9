"""Runs previews and comparisons in processes of their own, because rows are untrusted input.

A process has no secrets in its environment, a time limit, and one task.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from schemas.units import Ms
from services.gateway.files.preview_tasks import (
    COMPARE_LOCALLY,
    ComparisonAnswer,
    Preview,
    PreviewAnswer,
    RefusedTask,
    Task,
)
from services.gateway.web.errors import ApiError, invalid, unavailable

PREVIEW_MS_MAX: Final[Ms] = 20_000
PROCESSES_MAX: Final = 2
WAITING_MAX: Final = 16
PASSED_ON: Final = ("PATH", "PYTHONPATH", "HOME", "LANG", "VIRTUAL_ENV")
ANSWERS: Final[msgspec.json.Decoder[PreviewAnswer | ComparisonAnswer | RefusedTask]] = (
    msgspec.json.Decoder(PreviewAnswer | ComparisonAnswer | RefusedTask)
)


class PreviewProcesses:
    """Implements `Previews`."""

    def __init__(self, wait_ms_max: Ms = PREVIEW_MS_MAX) -> None:
        self._wait_ms_max = wait_ms_max
        self._processes = asyncio.Semaphore(PROCESSES_MAX)
        self._asked = 0

    async def ask(self, task: Task) -> Mapping[str, Any]:
        """Run a task in a new process; returns its answer. Raises ApiError 400, 500, 503."""
        if self._asked >= WAITING_MAX:
            raise unavailable("The preview of rows")
        self._asked += 1
        try:
            async with self._processes:
                return await self._run(task)
        finally:
            self._asked -= 1

    async def _run(self, task: Task) -> Mapping[str, Any]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.gateway.files.preview_worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
        )
        try:
            async with asyncio.timeout(self._wait_ms_max / 1_000):
                out, _ = await process.communicate(msgspec.json.encode(task))
        except TimeoutError as error:
            raise _too_slow(task, self._wait_ms_max) from error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            raise ApiError(500, "internal_error", "The preview ended before its answer.")
        answer = ANSWERS.decode(out)
        if isinstance(answer, RefusedTask):
            raise invalid(answer.message, answer.param)
        return msgspec.to_builtins(answer)  # type: ignore[no-any-return]  # of a struct: a dict


def _too_slow(task: Task, wait_ms_max: Ms) -> ApiError:
    if isinstance(task, Preview):
        text = f"The rows could not be shown within {wait_ms_max} ms; ask for fewer."
        return invalid(text, "rows")
    text = f"The files could not be compared within {wait_ms_max} ms. {COMPARE_LOCALLY}"
    return invalid(text, "before")
