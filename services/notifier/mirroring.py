"""Writes jobs to the MLflow servers of their tenants. A row of the to-do list is a job, from its
submission until its run is complete.

A pass writes what has come since the last one; between passes nothing is held. The run is found by
its tag, and continues after the last step that it names, so a pass that is cut off harms nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args
from uuid import uuid5

import msgspec

from schemas.ids import NAMESPACE
from schemas.integrations import MirrorCause, MirrorReport, RecordMirror, TrackingServer
from schemas.job import JobEnded, JobSubmitted
from schemas.sealed import REDACTED
from schemas.topics import TELEMETRY
from schemas.units import Ms
from services.notifier.domain.mirrored import TRIES_MAX, MirrorFailed, delay_ms, job_document
from services.notifier.domain.target import Forbidden
from services.notifier.figures import BLOCK_STEPS
from services.notifier.figures import NAME as FIGURES
from services.notifier.metrics import MIRROR_FAILURES, MIRRORS_ENDED
from services.notifier.ports import ReceiverUnreachable, ServerAnswer, TenantServers
from services.notifier.project import (
    MIRROR,
    MIRRORS,
    MLFLOW,
    NEWEST_STEPS,
    SERVERS,
    STEPS,
    mirror_id,
)
from tunery.mirrors.mlflow_runs import MlflowRun
from tunery.platform.ports import Runtime
from tunery.platform.seal.model_names import with_shown_names
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Effect, GoOnLater, RetryLater, Send

T = TypeVar("T")
LOG: Final = logging.getLogger("tunery.notifier")
FOLLOW_MS: Final[Ms] = 5_000  # between two passes about a job that runs
SETTLE_MS: Final[Ms] = 2_000  # after a job's end, for its last steps to be on the log
PASS_STEPS_MAX: Final = 10 * BLOCK_STEPS  # then other jobs have their turn
CONCURRENCY: Final = 16
OF_TENANT_MAX: Final = 2  # a slow server holds up jobs of its tenant alone
ROW_LEASE_MS: Final[Ms] = 120_000
SENT_MAX: Final = 10_000  # jobs whose last step is remembered


@dataclass(frozen=True)
class _Job:
    """A job and what is known of it."""

    submitted: JobSubmitted
    tenant: str
    created_at: Ms
    ended: JobEnded | None
    ended_at: Ms | None
    newest: int  # the step that was read last; 0: none
    is_reported: bool


def mirror(runtime: Runtime, servers: TenantServers) -> Effect[JobSubmitted]:
    """The effect of one job."""
    passes = _Passes(runtime, servers)

    def exhausted(job: JobSubmitted, tenant: str, failure: str) -> Send:
        cause, _, status = failure.partition(" ")
        known = cause if cause in get_args(MirrorCause) else "failed"
        report = MirrorReport(
            kind=MLFLOW,
            status="gave_up",
            cause=msgspec.convert(known, MirrorCause),
            http_status=int(status) if status.isdigit() else None,
        )
        return _end(job, tenant, report)

    for outcome in ("written", "gave_up"):
        MIRRORS_ENDED.labels(outcome)  # 0: so that the first is seen as growth
    for known_cause in get_args(MirrorCause):
        MIRROR_FAILURES.labels(known_cause)
    return Effect(
        kind=MIRROR,
        body=JobSubmitted,
        run=passes.run,
        exhausted=exhausted,
        row_lease_ms=ROW_LEASE_MS,
        concurrency=CONCURRENCY,
        tries_max=TRIES_MAX,
        delay_ms=delay_ms,
        of_tenant_max=OF_TENANT_MAX,
    )


def _end(job: JobSubmitted, tenant: str, report: MirrorReport) -> Send:
    """The command that ends the row of a job; it goes when that is read back."""
    log_event(LOG, logging.INFO, "mirror.ended", outcome=report.status, why=report.cause)
    MIRRORS_ENDED.labels(report.status).inc()
    return Send("job", tenant, tenant, RecordMirror(job_id=job.job_id, report=report))


class _Passes:
    """Progress of passes over telemetry.

    sent: last step that a server is known to have, by job
    ends: for each ended job, the offset in telemetry before which its last steps are
    """

    def __init__(self, runtime: Runtime, servers: TenantServers) -> None:
        self._runtime, self._servers = runtime, servers
        self._sent: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._threads = ThreadPoolExecutor(CONCURRENCY, "mirror")

    async def run(self, body: JobSubmitted, tenant: str, _: int = 1) -> Send | None:
        """One pass. Raises GoOnLater while there is more to come, RetryLater for a failure."""
        job = await self._job(body, tenant)
        if job is None:
            return None  # it has ended, and its row is about to go
        name = mirror_id(tenant, body.job_id)
        is_over = await self._is_over(job, name)
        if is_over:  # its last steps may have come since it was read
            job = await self._job(body, tenant) or job
        elif self._sent.get(name, -1) >= job.newest:
            raise GoOnLater(FOLLOW_MS)
        try:
            last = await self._write(job, is_over=is_over)
        except MirrorFailed as failure:
            MIRROR_FAILURES.labels(failure.cause).inc()
            await self._report(job, failure)
            raise RetryLater(str(failure)) from failure
        if is_over and last >= job.newest:
            for known in (self._sent, self._ends):
                known.pop(name, None)
            return _end(body, tenant, MirrorReport(kind=MLFLOW, status="written"))
        if len(self._sent) >= SENT_MAX:
            self._sent.clear()  # asking a server once more is all that it costs
            self._ends.clear()
        self._sent[name] = last
        raise GoOnLater(0 if last < job.newest else FOLLOW_MS)

    async def _is_over(self, job: _Job, name: str) -> bool:
        """Return whether the job has ended and all its steps have been projected."""
        if job.ended_at is None or self._runtime.clock.now_ms() < job.ended_at + SETTLE_MS:
            return False
        partition = partition_of(job.submitted.job_id.encode())
        if name not in self._ends:
            _, self._ends[name] = await self._runtime.log.bounds(TELEMETRY.name, partition)
        positions = await self._runtime.store.positions(FIGURES)
        return positions[FIGURES, partition].position.offset >= self._ends[name]

    async def _job(self, body: JobSubmitted, tenant: str) -> _Job | None:
        where = {"tenant": tenant, "job_id": body.job_id}
        rows = await self._runtime.store.rows(MIRRORS, where)
        if not rows or rows[0]["created_at"] is None:
            return None
        (row,) = rows
        newest = await self._runtime.store.rows(NEWEST_STEPS, where)
        ended = row.get("ended")
        return _Job(
            submitted=body,
            tenant=tenant,
            created_at=row["created_at"],
            ended=None if ended is None else msgspec.convert(ended, JobEnded),
            ended_at=row.get("ended_at"),
            newest=newest[0]["step"] if newest else 0,
            is_reported=bool(row.get("is_reported")),
        )

    async def _write(self, job: _Job, *, is_over: bool) -> int:
        """Write what the server does not have, up to PASS_STEPS_MAX steps, and the outcome with the
        last ones. Returns the last step that it has. Raises MirrorFailed.
        """
        seal, spec = self._runtime.seal, job.submitted.spec
        asked = next(integration for integration in spec.integrations if integration.kind == MLFLOW)
        settings = seal.open(asked.settings, "integration")
        server = await self._server(job.tenant)
        url = seal.open(server.url, "url")
        if REDACTED in (settings, url):
            raise MirrorFailed("no_server")
        sealed = server.authorization
        header = None if sealed is None else seal.open(sealed, "authorization")
        suffix = None if spec.suffix is None else seal.open(spec.suffix, "suffix")
        document = job_document(job.submitted, job.created_at, suffix, job.ended, job.ended_at)
        document = with_shown_names(seal, job.tenant, document)
        calls = _Calls(asyncio.get_running_loop(), self._servers, url, header)
        run = MlflowRun(calls, msgspec.json.decode(settings)["experiment"])
        try:
            last = await self._in_thread(run.begin, document)
            steps = await self._steps(job, last)
            await self._in_thread(_add, run, steps)
            last = steps[-1]["step"] if steps else max(last, 0)
            if is_over and last >= job.newest:
                await self._in_thread(run.end, document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MirrorFailed("failed") from error  # no MLflow server answers like this
        return last

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)

    async def _server(self, tenant: str) -> TrackingServer:
        rows = await self._runtime.store.rows(SERVERS, {"tenant": tenant})
        if not rows:
            raise MirrorFailed("no_server")
        return msgspec.convert(rows[0]["server"], TrackingServer)

    async def _steps(self, job: _Job, last: int) -> list[dict[str, Any]]:
        """Steps after the last one, in their order."""
        steps: list[dict[str, Any]] = []
        where = {"tenant": job.tenant, "job_id": job.submitted.job_id}
        for block in range(last // BLOCK_STEPS, job.newest // BLOCK_STEPS + 1):
            rows = await self._runtime.store.rows(STEPS, {**where, "block": block})
            documents = [row["document"] for row in rows if row["step"] > last]
            steps += sorted(documents, key=lambda step: int(step["step"]))
            if len(steps) >= PASS_STEPS_MAX:
                break
        return steps

    async def _report(self, job: _Job, failure: MirrorFailed) -> None:
        """Record the first failure in the job's events. A repeated command is the same."""
        if job.is_reported:
            return
        job_id, tenant = job.submitted.job_id, job.tenant
        report = MirrorReport(
            kind=MLFLOW, status="failing", cause=failure.cause, http_status=failure.http_status
        )
        command_id = str(uuid5(NAMESPACE, f"mirror/{mirror_id(tenant, job_id)}/failing"))
        body = RecordMirror(job_id=job_id, report=report)
        await self._runtime.sender.send("job", tenant, tenant, body, command_id=command_id)


def _add(run: MlflowRun, steps: Sequence[dict[str, Any]]) -> None:
    for step in steps:
        run.add(step)
    run.flush()


class _Calls:
    """Implements `MlflowCalls` for a thread, over connections of the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        servers: TenantServers,
        url: str,
        authorization: str | None,
    ) -> None:
        self._loop, self._servers, self.url = loop, servers, url
        self._headers = {
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "tunery-mlflow/1",
        }
        if authorization is not None:
            self._headers["authorization"] = authorization

    def call(
        self, method: str, path: str, body: Any = None, permitted: str | None = None
    ) -> dict[str, Any]:
        """The answer; empty for an error with the code that is permitted. Raises MirrorFailed."""
        content = b"" if body is None else msgspec.json.encode(body)
        call = self._servers.call(method, f"{self.url}/api/2.0/{path}", self._headers, content)
        try:
            answer = asyncio.run_coroutine_threadsafe(call, self._loop).result()
        except Forbidden as error:
            raise MirrorFailed("address_not_allowed") from error
        except ReceiverUnreachable as error:
            raise MirrorFailed("unreachable") from error
        if 200 <= answer.status < 300:
            return _decoded(answer)
        if permitted is not None and _error_code(answer) == permitted:
            return {}
        raise MirrorFailed("refused", answer.status)

    def close(self) -> None:
        """Connections are of the service."""


def _error_code(answer: ServerAnswer) -> Any:
    """MLflow's code of an error; None: the answer has none."""
    try:
        return _decoded(answer).get("error_code")
    except MirrorFailed:
        return None


def _decoded(answer: ServerAnswer) -> dict[str, Any]:
    """The object of an answer, empty where it has no content. Raises MirrorFailed."""
    try:
        return msgspec.json.decode(answer.content or b"{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise MirrorFailed("failed") from error
