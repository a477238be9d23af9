"""Runs imports: reads an account, plans its jobs, and uploads the rows.

A program of its own has the key and the network, and reads the account into a folder; a confined
one without either parses what came. A run that was killed goes on in the same folder.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from schemas.ids import FILE, derived_id
from schemas.imports import (
    EndImport,
    ImportEnded,
    ImportResult,
    ImportStarted,
    ImportTerms,
    RecordImport,
)
from schemas.sealed import REDACTED
from schemas.storage import FileTerms, Purpose
from schemas.topics import ACCOUNT
from schemas.units import Micro, Ms
from services.gateway.accounts.auth import principal_of
from services.gateway.files.domain.bodies import PURPOSE, RESULTS
from services.gateway.files.routes import register_stored, rows_max
from services.gateway.files.storage_routes import checked_limits
from services.gateway.imports.domain.program import ANSWERS, ASKED, OUTCOME, PROGRAM
from services.gateway.jobs.recipes import recipe_problems
from services.gateway.plan_limits import PlanLimits
from services.gateway.views.tables.files import FILES
from services.gateway.views.tables.imports import IMPORTS
from services.gateway.views.tables.models import BASES
from services.gateway.views.todos import IMPORT_KEY, IMPORT_RUN
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import ApiError
from tunery.confinement.confined import Confinement, private_environment
from tunery.confinement.policy import ConfinementPolicy
from tunery.platform.confined_workers import ConfinedWorkers, Work
from tunery.runtime.verbs import Effect, Outage, RetryLater, Send

# variables that it gets: none of our settings, which have passwords
PASSED_ON: Final = (
    *("PATH", "PYTHONPATH", "HOME", "LANG", "VIRTUAL_ENV", "SSL_CERT_FILE"),
    *("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"),
)
POLL_S: Final = 2.0  # between two looks whether it was cancelled
RECORD_S: Final = 6.0  # between two records of its progress
LEASE_MS: Final[Ms] = 20_000
PLAN_MS_MAX: Final[Ms] = 3_600_000
PLAN_CPU_S_MAX: Final = 3_600
PLAN_MEMORY_BYTES_MAX: Final = 4 * 1024**3
LINE_BYTES_MAX: Final = 1024 * 1024  # of the program's output
TRIES_MAX: Final = 6
KEY_TRIES_MAX: Final = 1_000_000  # until the key is destroyed
BASES_MAX: Final = 1_000


class _Refused(Exception):
    """The import fails; the text says why."""


def run_imports(deps: Deps, folder: Path, confinement: Confinement) -> Effect[ImportStarted]:
    """The effect that runs an import. folder: for what is read, until it has ended."""
    workers = ConfinedWorkers(
        PROGRAM, confinement=confinement, environment=_environment(), forks=False
    )

    async def run(started: ImportStarted, tenant: str, _: int = 1) -> Send | None:
        terms = started.terms
        key = deps.seal.open(terms.key, "authorization")
        if not await _is_open(deps, tenant, terms.import_id):
            return None
        if key == REDACTED:
            return _failed(deps, tenant, terms.import_id, "its key was destroyed")
        caller = await principal_of(deps, tenant, terms.key_id)
        reading = _Import(deps, caller, terms, folder / terms.import_id, workers)
        try:
            return await reading.run(key)
        except _Refused as error:
            return _failed(deps, tenant, terms.import_id, str(error))
        except ApiError as error:
            if error.status >= 500:
                raise Outage(error.message) from error
            if error.status == 404 and not await _is_open(deps, tenant, terms.import_id):
                return None  # its tenant is being erased
            return _failed(deps, tenant, terms.import_id, error.message)

    return Effect(
        kind=IMPORT_RUN,
        body=ImportStarted,
        run=run,
        exhausted=lambda started, tenant, why: _failed(deps, tenant, started.terms.import_id, why),
        unrecorded=True,
        row_lease_ms=LEASE_MS,
        of_tenant_max=1,
        tries_max=TRIES_MAX,
    )


def destroy_keys(deps: Deps, folder: Path) -> Effect[ImportEnded]:
    """The effect that makes the key of an ended import unreadable, and empties its folder."""

    async def run(ended: ImportEnded, _tenant: str, _: int = 1) -> None:
        await asyncio.to_thread(deps.seal.destroy, ended.result.import_id)
        await asyncio.to_thread(shutil.rmtree, folder / ended.result.import_id, True)

    return Effect(
        kind=IMPORT_KEY,
        body=ImportEnded,
        run=run,
        unrecorded=True,
        row_lease_ms=LEASE_MS,
        tries_max=KEY_TRIES_MAX,
    )


async def _is_open(deps: Deps, tenant: str, import_id: str) -> bool:
    row = await deps.views.first(IMPORTS, {"tenant": tenant, "id": import_id})
    return row is not None and row.result is None


def _failed(deps: Deps, tenant: str, import_id: str, why: str) -> Send:
    detail = deps.seal.seal(tenant, why, "detail")
    return _end(tenant, ImportResult(import_id=import_id, outcome="failed", detail=detail))


def _end(tenant: str, result: ImportResult) -> Send:
    return Send(ACCOUNT.name, tenant, tenant, EndImport(result=result))


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


class _Import:
    """One import, in a folder of its own."""

    _limits: PlanLimits

    def __init__(
        self,
        deps: Deps,
        caller: Principal,
        terms: ImportTerms,
        root: Path,
        workers: ConfinedWorkers,
    ) -> None:
        self._deps, self._caller, self._terms = deps, caller, terms
        self._root, self._workers = root, workers
        self._progress = ""

    async def run(self, key: str) -> Send | None:
        """Return the command that ends it; None: it has ended meanwhile.

        Raises _Refused, RetryLater, ApiError.
        """
        work = asyncio.create_task(self._run(key), name="import")
        recorded, recorded_at = "", 0.0
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=POLL_S)
                if not await _is_open(self._deps, self._caller.tenant, self._terms.import_id):
                    return None
                now = asyncio.get_running_loop().time()
                if self._progress != recorded and now - recorded_at >= RECORD_S:
                    recorded, recorded_at = self._progress, now
                    await self._record(recorded)
            return await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _run(self, key: str) -> Send:
        self._limits = await checked_limits(self._deps, self._caller)  # refused before it is read
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._read(key)
        self._progress = "rows are checked, and jobs are planned"
        await self._plan()
        outcome = await self._left(OUTCOME)
        answers_id = None
        if self._terms.teacher_budget_micro is not None:
            await self._ask(key, self._terms.teacher_budget_micro)
            outcome["teacher"] = await self._left(ASKED)
            if (answers := self._root / ANSWERS).stat().st_size:
                answers_id = await self._store(answers, RESULTS)
        file_id = await self._upload(outcome)
        result = ImportResult(
            import_id=self._terms.import_id,
            outcome="completed",
            plan_file_id=file_id,
            teacher_file_id=answers_id,
        )
        return _end(self._caller.tenant, result)

    async def _left(self, name: str) -> Any:
        """Return what the program has left under a name."""
        return json.loads(await asyncio.to_thread((self._root / name).read_text, "utf-8"))

    async def _record(self, text: str) -> None:
        progress = self._deps.seal.seal(self._caller.tenant, text, "detail")
        command = RecordImport(import_id=self._terms.import_id, progress=progress)
        with suppress(ApiError):  # it has ended, or the log is away: the next one is tried
            await self._deps.decide(self._caller, ACCOUNT, command)

    async def _read(self, key: str) -> None:
        """Read the account. Raises _Refused, RetryLater."""
        await self._run_program("read", key, bytes_max=self._deps.settings.import_bytes_max)

    async def _ask(self, key: str, budget_micro: Micro) -> None:
        """Ask the old models what is held out, within a budget. Raises _Refused, RetryLater."""
        prices = json.loads(self._deps.unseal(self._terms.prices, "detail") or "[]")
        await self._run_program("ask", key, budget_micro=budget_micro, prices=prices)

    async def _run_program(self, command: str, key: str, **order: Any) -> None:
        """Run a part of the import that has the key and the network.

        Raises _Refused, RetryLater.
        """
        terms, unseal = self._terms, self._deps.unseal
        order |= {
            "source": terms.source,
            "url": unseal(terms.url, "url"),
            "key": key,
            "api_version": terms.api_version,
            "deployments": json.loads(unseal(terms.deployments, "detail") or "{}"),
        }
        process = await asyncio.create_subprocess_exec(
            *("nice", "-n", str(self._limits.niceness)),
            *(sys.executable, "-m", PROGRAM, command, str(self._root)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=_environment(),
            limit=LINE_BYTES_MAX,
        )
        assert process.stdin is not None  # noqa: S101  # pipes, as asked for
        assert process.stdout is not None  # noqa: S101  # a pipe, too
        last: dict[str, Any] = {}
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.close()
            async for line in process.stdout:
                last = json.loads(line)
                self._progress = last.get("progress", self._progress)
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        _check(code, last)

    async def _plan(self) -> None:
        """Plan its jobs. Raises _Refused."""
        rows = await self._deps.views.page(BASES, {}, limit=BASES_MAX, descending=False)
        here = {name: row.id for row in rows for name in (*row.base.aliases, row.id)}
        asks = self._terms.teacher_budget_micro is not None
        work = Work(
            arguments=("plan", str(self._root)),
            policy=ConfinementPolicy(
                write=(str(self._root),),
                memory_bytes_max=PLAN_MEMORY_BYTES_MAX,
                cpu_s_max=PLAN_CPU_S_MAX,
            ),
            tenant=self._caller.tenant,
            niceness=self._limits.niceness,
            ms_max=PLAN_MS_MAX,
            environment=private_environment(self._root),
            stdin=json.dumps({"here": here, "asks": asks}).encode() + b"\n",
        )
        try:
            finished = await self._workers.run(work)
        except TimeoutError:
            raise _Refused("its rows could not be checked within an hour") from None
        lines = finished.answer.splitlines()
        if finished.code != 0 and not lines:
            raise RetryLater(finished.describe())
        _check(finished.code, json.loads(lines[-1]) if lines else {})

    async def _upload(self, outcome: Mapping[str, Any]) -> str:
        """Upload rows of planned jobs, and the plan; return the id of its file. Raises ApiError."""
        deps, root = self._deps, self._root
        file_ids: dict[str, str | None] = {}  # by path; None: the file is too large

        async def uploaded(path: Path) -> str | None:
            name = str(path.relative_to(root))
            if name not in file_ids:
                is_too_large = path.stat().st_size > deps.settings.file_bytes_max
                self._progress = f"{name} is uploaded"
                file_ids[name] = None if is_too_large else await self._store(path, PURPOSE)
            return file_ids[name]

        kept = [
            {**rows, "path": None, "file_id": rows["path"] and await uploaded(Path(rows["path"]))}
            for rows in outcome["kept"]
        ]
        jobs = [
            {
                **{name: value for name, value in job.items() if name not in NOT_SHOWN},
                **await _requested(job, root, uploaded),
            }
            for job in outcome["jobs"]
        ]
        plan = root / f"{self._terms.import_id}.json"
        shown = {**outcome, "kept": kept, "jobs": jobs}
        await asyncio.to_thread(plan.write_text, json.dumps(shown, ensure_ascii=False), "utf-8")
        return await self._store(plan, RESULTS)

    async def _store(self, path: Path, purpose: Purpose) -> str:
        """Store and register a file; return its id. Raises ApiError, BlobError."""
        deps, caller = self._deps, self._caller
        name = str(path.relative_to(self._root))
        file_id = FILE + derived_id(caller.tenant, self._terms.import_id, name)
        if await deps.views.first(FILES, {"tenant": caller.tenant, "id": file_id}) is not None:
            return file_id
        stored = await deps.blobs.put_file(f"t/{caller.tenant}/files/{file_id}", path)
        terms = await terms_of(deps, caller, self._limits, path.name, purpose)
        await register_stored(deps, caller, file_id, terms, stored, self._limits.quota)
        return file_id


async def terms_of(
    deps: Deps, caller: Principal, limits: PlanLimits, name: str, purpose: Purpose
) -> FileTerms:
    """Return the terms of a file of an import under the plan's limits."""
    return FileTerms(
        purpose=purpose,
        name=deps.seal.seal(caller.tenant, name, "name"),
        rows_max=await rows_max(deps, caller),
        niceness=limits.niceness,
    )


NOT_SHOWN: Final = ("recipe", "questions")


async def _requested(
    job: Mapping[str, Any], root: Path, uploaded: Callable[[Path], Any]
) -> dict[str, Any]:
    """Return the request of a job here, None where it is not trained again, and its reasons."""
    recipe, reasons = job["recipe"], list(job["reasons"])
    if recipe is None:
        return {"request": None, "reasons": reasons}
    reasons += [f"{at.param}: {at.message}" for at in recipe_problems(recipe)]
    request = {name: value for name, value in recipe.items() if name != "version"}
    for name in ("training_file", "validation_file"):
        if name not in recipe:
            continue
        request[name] = await uploaded(root / recipe[name].removeprefix("../"))
        if request[name] is None:
            return {"request": None, "reasons": [*reasons, f"its {name} is too large for a file"]}
    return {"request": request, "reasons": reasons}


def _check(code: int, last: Mapping[str, Any]) -> None:
    """Raises _Refused or RetryLater where the program has failed."""
    if code == 0:
        return
    if "error" not in last:
        raise RetryLater(f"the program that reads accounts exited with {code}")
    if last["again"]:
        raise RetryLater(last["error"])
    raise _Refused(last["error"])
