"""Runs previews and comparisons in processes of their own, because rows are untrusted input.

A process has no secrets in its environment, one task, and limits on time and memory. It reads the
files of its task, and nothing else of a tenant's. Tenants take turns, and none has all processes.
"""

import logging
import os
import shutil
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final

import msgspec

from schemas.units import Ms
from services.gateway.files.domain.preview_tasks import (
    COMPARE_LOCALLY,
    MEMORY_BYTES_MAX,
    PARAMS,
    READ_FILES,
    Answer,
    Comparison,
    Count,
    MovedModels,
    Preview,
    RefusedTask,
    Task,
)
from services.gateway.web.domain.errors import ApiError, above_limit, invalid, unavailable
from tunery.confinement.confined import Confinement
from tunery.confinement.policy import ConfinementPolicy
from tunery.platform.confined_workers import ConfinedWorkers, Work
from tunery.platform.fair_places import FairPlaces
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.gateway")
MODULE: Final = "services.gateway.files.preview_worker"
PREFIX: Final = "tunery-rows-"
PREVIEW_MS_MAX: Final[Ms] = 20_000
PROCESSES_MAX: Final = 2
OF_TENANT_MAX: Final = 1  # processes of one tenant at a time: one is left for others
WAITING_MAX: Final = 64
CPU_S_MAX: Final = 120  # of all threads
CONFINED: Final = Confinement()
PASSED_ON: Final = ("PATH", "PYTHONPATH", "HOME", "LANG", "VIRTUAL_ENV")
ANSWERS: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


class PreviewProcesses:
    """Implements `Previews`."""

    def __init__(
        self, wait_ms_max: Ms = PREVIEW_MS_MAX, confinement: Confinement = CONFINED
    ) -> None:
        self._wait_ms_max, self._confinement = wait_ms_max, confinement
        self._turns = FairPlaces(WAITING_MAX, OF_TENANT_MAX)  # a tenant rests in no place of others
        self._processes = FairPlaces(PROCESSES_MAX, OF_TENANT_MAX)
        self._asked = Counter[str]()
        self._root, self._workers = self._open()

    def _open(self) -> tuple[Path, ConfinedWorkers]:
        """A folder for files of tasks, and workers that may read below it."""
        root = mkdtemp(prefix=PREFIX)
        weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return Path(root), ConfinedWorkers(
            MODULE,
            confinement=self._confinement,
            environment=environment,
            read=(root,),
            memory_bytes_max=MEMORY_BYTES_MAX,
        )

    @contextmanager
    def admit(self, tenant: str, of_tenant_max: int) -> Iterator[Path]:
        """Count a request until the end of the context, before anything is done for it.

        Returns an empty folder for the files of its task. Raises ApiError: 429 above the tenant's
        limit, 503 above that of all.
        """
        if self._asked[tenant] >= of_tenant_max:
            raise above_limit("previews_max", of_tenant_max)
        if self._asked.total() >= WAITING_MAX:
            raise unavailable("The preview of rows")
        self._asked[tenant] += 1
        try:
            if not self._root.is_dir():  # old temporary files were removed
                self._root, self._workers = self._open()
            with TemporaryDirectory(dir=self._root) as folder:
                yield Path(folder)
        finally:
            self._asked[tenant] -= 1
            if not self._asked[tenant]:
                del self._asked[tenant]

    async def ask(self, task: Task, tenant: str, niceness: int) -> Mapping[str, Any]:
        """Run a task in a new process; returns its answer. Raises ApiError 400, 500, 503."""
        async with self._turns.take(tenant):
            await self._workers.rest(tenant)
            async with self._processes.take(tenant):
                return await self._run(task, tenant, niceness)

    async def _run(self, task: Task, tenant: str, niceness: int) -> Mapping[str, Any]:
        # models are compared by thousands of resamples of their questions
        wait_ms_max = self._wait_ms_max * (3 if isinstance(task, MovedModels) else 1)
        work = Work(
            folders=(task.base_path,) if isinstance(task, Preview | Count) else (),
            policy=_policy(task),
            tenant=tenant,
            niceness=niceness,
            ms_max=wait_ms_max,
            stdin=msgspec.json.encode(task),
        )
        try:
            finished = await self._workers.run(work)
        except TimeoutError as error:
            raise _too_slow(task, wait_ms_max) from error
        if finished.code != 0:
            log_event(LOG, logging.ERROR, "preview.failed", why=finished.describe())
            raise ApiError(500, "internal_error", "The preview ended before its answer.")
        answer = ANSWERS.decode(finished.answer)
        if isinstance(answer, RefusedTask):
            raise invalid(answer.message, answer.param)
        return msgspec.to_builtins(answer)  # type: ignore[no-any-return]  # of a struct: a dict


def _policy(task: Task) -> ConfinementPolicy:
    """Return a policy that permits to read the task's files, and to write nothing."""
    match task:
        case Preview():
            read: tuple[str, ...] = (task.path, *filter(None, (task.tokenizer,)))
        case Count():
            read = (task.path, task.tokenizer)
        case Comparison():
            read = (task.before, task.after)
        case MovedModels():
            read = (task.moves, task.old, *task.new, *task.judged)
    return ConfinementPolicy(
        read=read, memory_bytes_max=MEMORY_BYTES_MAX, file_bytes_max=0, cpu_s_max=CPU_S_MAX
    )


def _too_slow(task: Task, wait_ms_max: Ms) -> ApiError:
    match task:
        case Preview():
            text = f"The rows could not be shown within {wait_ms_max} ms; ask for fewer."
        case Count():
            text = (
                f"The rows of {task.source} could not be rendered within {wait_ms_max} ms; give a "
                "simpler template."
            )
        case Comparison():
            text = f"The files could not be compared within {wait_ms_max} ms. {COMPARE_LOCALLY}"
        case MovedModels():
            text = f"The models could not be compared within {wait_ms_max} ms. {READ_FILES}"
    return invalid(text, PARAMS[type(task)])
