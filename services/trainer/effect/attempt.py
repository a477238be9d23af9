"""One lease on this machine: fetch, start, follow, report, clean up.

Every failure is reported with `ReportExit`; only then are the slots confirmed free. Nothing is
decided here: `pool` takes the first of contradicting facts and refuses the rest.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from schemas.envelope import Message
from schemas.pool import ConfirmFreed, ReportExit, ReportStarted
from schemas.records import build_from
from schemas.sealed import Sealed
from schemas.training import FailureCause
from schemas.units import Ms
from services.trainer.domain.state import Grant, TargetState
from services.trainer.effect.environment import accelerators, process_environment
from services.trainer.effect.error_lines import error_lines
from services.trainer.effect.gang import Gang
from services.trainer.effect.lease_keys import KeysMissing, LeaseKeys
from services.trainer.effect.process_end import ProcessEnd
from services.trainer.effect.program import Program, Tools
from services.trainer.ports import WorkProcess
from tunery.platform.seal.abstract import KeyStoreBroken
from tunery.ranks.group import GRACE_S
from tunery.runtime.tasks import run_again, run_apart
from tunery.runtime.telemetry.logs import log_context, log_event
from tunery.runtime.telemetry.traces import traced
from tunery.runtime.telemetry.trail import current_trail
from tunery.work.codec import decode_event
from tunery.work.events import Failed
from tunery.work.exits import ExitCode, WorkError, is_machine_fault

MESSAGE_CHARACTERS_MAX: Final = 4_000  # of a failure message, which is kept on the log
KILLED: Final = (
    "Its agent did not kill it: the kernel kills processes like this when memory runs out."
)
KILLED_BY_KERNEL: Final = (
    "Memory ran out: since it started the kernel has killed processes for lack of memory ({count})."
)
KILLED_FROM_OUTSIDE: Final = (
    "Neither its agent nor the kernel killed it: since it started the kernel has killed no process "
    "for lack of memory. Somebody or something else on the machine did."
)
CAUSES_OF_DEVICES: Final = frozenset({"bad_node", "platform"})
DEVICES_SAY_MS: Final[Ms] = 6_000  # the driver is read every 2 s, and so is what was read
DEVICES_POLL_MS: Final[Ms] = 200
LOG: Final = logging.getLogger(__name__)


class LeaseAttempt:
    """Runs one lease. The target may be set at any time, also before the process exists.

    keys: with which its tools open and seal, once they have come
    """

    def __init__(
        self,
        grant: Grant,
        tools: Tools,
        program: Program,
        folder: Path,
        keys: LeaseKeys,
    ) -> None:
        self._grant, self._tools, self._program, self._folder = grant, tools, program, folder
        self._keys = keys
        self._target: TargetState = "run"
        self._process: WorkProcess | None = None
        self._has_begun = False
        self._known_end: ProcessEnd | None = None
        self._started_ms: int | None = None
        self._ended_ms: int | None = None
        self._failed: Failed | None = None
        self._memory_kills: int | None = None  # before it started
        self._prepared_bytes = 0
        self._status: int | None = None  # that the process ended with
        self._errors = ""  # the end of its standard error
        self._idle_since_ms: int | None = None  # set while the agent waits for the next event
        self._is_abandoned = False  # ended because ranks of other nodes had

    @property
    def _subject(self) -> dict[str, Any]:
        """Fields of each log line about this lease."""
        grant = self._grant
        return {
            "tenant": grant.tenant,
            "job_id": grant.job_id,
            "attempt": grant.attempt,
            "lease": grant.token.lease,
        }

    @property
    def idle_ms(self) -> Ms:
        """Time since the last event of the started process; 0 while it is not awaited."""
        if self._idle_since_ms is None:
            return 0
        return self._tools.runtime.clock.monotonic_ms() - self._idle_since_ms

    @property
    def elapsed_ms(self) -> Ms:
        """Monotonic time since the process began to work; it stands still once that has ended."""
        if self._started_ms is None:
            return 0
        return (self._ended_ms or self._tools.runtime.clock.monotonic_ms()) - self._started_ms

    def prepared_bytes(self) -> int:
        """Return the bytes fetched and read to prepare the start; constant once that is done."""
        if self._started_ms is None:
            read = 0 if self._process is None else self._process.read_bytes()
            self._prepared_bytes = max(self._prepared_bytes, read + _stored_bytes(self._folder))
        return self._prepared_bytes

    def set_target(self, target: TargetState) -> None:
        """Drain or kill the process, now or as soon as there is one."""
        if target == self._target:
            return
        self._target = target
        log_event(LOG, logging.INFO, "attempt.target_set", target=target, **self._subject)
        if self._process is not None:
            self._signal(self._process)
        elif target == "kill" and self._program.gang is not None:
            self._program.gang.stop_waiting()  # the first member may have failed before it listens

    def take_keys(self, sealed_keys: str) -> None:
        """Take the keys of the lease; the same ones may come more than once."""
        self._keys.take(sealed_keys)

    def meet(self, rendezvous: Sealed) -> None:
        """Take the address of the lease's first member."""
        if self._program.gang is not None:
            self._program.gang.meet(rendezvous)

    async def run(self) -> None:
        """Work until the end, and report it however it ended.

        Called again after a stray cancellation, which ended the process, it only reports.
        """
        grant = self._grant
        span = traced(current_trail(), f"attempt {grant.role}", "consumer", **self._subject)
        with log_context(**self._subject), span:
            if self._known_end is None:
                self._known_end = await self._work()
                self._log_end(self._known_end)
                await self._let_devices_say(self._known_end)
            end = self._known_end
            await run_again(partial(self._report, end), f"report of lease {grant.token.lease}")
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _work(self) -> ProcessEnd:
        """Work once; how it ended. A lease without an end would be billed to its limit."""
        lease = self._grant.token.lease
        if self._has_begun:
            return ProcessEnd("failed", "platform", f"the work of lease {lease} was cut off")
        self._has_begun = True
        try:
            end = await self._end_of_work()
            gang = self._program.gang
            return end if gang is None else await self._settle(gang, end)
        finally:
            await self._program.close()

    async def _end_of_work(self) -> ProcessEnd:
        """The end of this member of the lease."""
        lease = self._grant.token.lease
        try:
            return await run_apart(self._run(), f"work of lease {lease}")
        except KeysMissing as error:
            log_event(LOG, logging.ERROR, "lease.keys_missing", why=error)
            return ProcessEnd("failed", "platform", keyless=True)
        except WorkError as error:  # of the inputs: trying again changes nothing
            return ProcessEnd("failed", error.cause, f"{error.message}. {error.advice}")
        except Exception as error:  # any error: see `_work`
            log_event(LOG, logging.ERROR, "lease.failed", error)
            cause: FailureCause = "bad_node" if is_machine_fault(error) else "platform"
            return ProcessEnd("failed", cause, str(error) or type(error).__name__)

    async def _settle(self, gang: Gang, end: ProcessEnd) -> ProcessEnd:
        """The end of the lease, where this member reports it: it lasts to that of the last one."""
        settled = await gang.settle(end)
        if self._ended_ms is not None:
            self._ended_ms = max(self._ended_ms, gang.ended_ms)
        return settled

    async def _run(self) -> ProcessEnd:
        if self._stopping():  # granted to a node that is leaving
            return ProcessEnd("not_started")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True)
        await self._keys.fetch(self._stopping)
        if self._stopping():
            return ProcessEnd("not_started")
        gang = self._program.gang
        if gang is not None:
            await gang.open()
        log_event(LOG, logging.INFO, "attempt.preparing", program=type(self._program).__name__)
        arguments = await self._program.prepare(self._folder)
        access = self._program.access
        if gang is not None:
            access = await gang.placed(access)
        if self._stopping():
            return ProcessEnd("not_started")
        if gang is not None and gang.others_ended.is_set():
            return ProcessEnd("failed", "platform", "other nodes had ended", is_left=True)
        self._memory_kills = self._tools.memory_kills()
        process = await self._tools.launcher.start(
            (sys.executable, *arguments),
            process_environment(self._grant, self._tools.device_names),
            self._folder,
            access,
        )
        self._process = process
        log_event(LOG, logging.INFO, "attempt.process_started", pid=process.pid)
        if self._stopping():  # since it started
            self._signal(process)
        abandoning = None
        try:
            if gang is not None:
                abandoning = asyncio.create_task(self._abandon(gang, process))
            async for line in process.lines():
                self._idle_since_ms = None  # handling an event may take long: an upload, an outage
                await self._handle(line)
                if self._started_ms is not None and self._program.leads:
                    self._idle_since_ms = self._tools.runtime.clock.monotonic_ms()
            status = await process.wait()
        except BaseException:
            process.signal(signal.SIGKILL)
            await process.wait()  # without a limit: its slots are not free before it has ended
            raise
        finally:
            if abandoning is not None:
                abandoning.cancel()
            self._process = self._idle_since_ms = None
            self._ended_ms = self._tools.runtime.clock.monotonic_ms()
        self._status, self._errors = status, process.error_tail()
        return await self._end(status, self._errors)

    async def _abandon(self, gang: Gang, process: WorkProcess) -> None:
        """Kill ranks that have not noticed that those of other nodes have ended."""
        await gang.others_ended.wait()
        await asyncio.sleep(GRACE_S)
        self._is_abandoned = True
        process.signal(signal.SIGKILL)

    async def _handle(self, line: bytes) -> None:
        event = decode_event(line)
        if isinstance(event, Failed):
            self._failed = event
        started = await self._program.handle(event)
        if started is None:
            return
        self._started_ms = self._tools.runtime.clock.monotonic_ms()
        log_event(LOG, logging.INFO, "attempt.started", step=started.loaded_step)
        if not self._program.leads:
            return
        await self._send(
            ReportStarted(
                token=self._grant.token,
                incarnation=self._tools.incarnation,
                start=started,
            )
        )

    async def _end(self, status: int, errors: str) -> ProcessEnd:
        if status == ExitCode.FINISHED and not self._program.leads:
            return ProcessEnd("succeeded")
        if status == ExitCode.FINISHED:
            return ProcessEnd("succeeded", result=await self._program.result())
        if status == ExitCode.PREEMPTED or self._stopping():
            return ProcessEnd("preempted")
        if status == ExitCode.RANK_LOST or self._is_abandoned:
            return ProcessEnd("failed", "platform", "ranks of other nodes ended", is_left=True)
        if self._failed is not None:
            text = f"{self._failed.message} {self._failed.advice}".rstrip()
            return ProcessEnd("failed", self._failed.cause, text, rank=self._failed.rank)
        last = errors.strip().splitlines()[-1:] or ["its standard error is empty"]
        text = f"the process ended with status {status}: {last[0]}"
        if is_machine_fault(errors):
            return ProcessEnd("failed", "bad_node", text)
        if status == -signal.SIGKILL:
            return self._killed(text)
        return ProcessEnd("failed", "platform", text)

    def _killed(self, text: str) -> ProcessEnd:
        """The end of a process that was killed unasked: out of memory, unless the kernel says no.

        A kill from outside is no reason to train in smaller micro-batches: the job continues as it
        is, as after any fault of the platform.
        """
        before, after = self._memory_kills, self._tools.memory_kills()
        if before is None or after is None:
            return ProcessEnd("failed", "oom", f"{text}. {KILLED}")
        if after > before:
            said = KILLED_BY_KERNEL.format(count=after - before)
            return ProcessEnd("failed", "oom", f"{text}. {said}")
        return ProcessEnd("failed", "platform", f"{text}. {KILLED_FROM_OUTSIDE}")

    async def _let_devices_say(self, end: ProcessEnd) -> None:
        """Wait until faults of devices are reported to the pool, if they may be the cause.

        A process ends at once when its device breaks, and the driver says so a moment later. Then
        the pool ends the lease by itself; the device gets nothing new, and its node is not blamed.
        """
        if end.cause not in CAUSES_OF_DEVICES or not accelerators(self._grant):
            return
        for _ in range(DEVICES_SAY_MS // DEVICES_POLL_MS):
            if self._stopping():
                return
            await self._tools.runtime.clock.sleep(DEVICES_POLL_MS)

    def _log_end(self, end: ProcessEnd) -> None:
        """Log how the lease ended, without failure messages, which may quote the tenant."""
        log_event(
            LOG,
            logging.WARNING if end.outcome == "failed" else logging.INFO,
            "attempt.ended",
            outcome=end.outcome,
            cause=end.cause,
            status=self._status,
            elapsed_ms=self.elapsed_ms,
            stderr="\n".join(error_lines(self._errors)) if end.outcome == "failed" else None,
        )

    async def _report(self, end: ProcessEnd) -> None:
        grant = self._grant
        if not end.is_forwarded:
            await self._send(
                build_from(
                    ReportExit,
                    end,
                    token=grant.token,
                    incarnation=self._tools.incarnation,
                    elapsed_ms=self.elapsed_ms,
                    detail=self._detail(end.message),
                )
            )
        await self._send(
            ConfirmFreed(
                token=grant.token,
                node_id=grant.node_id,
                incarnation=self._tools.incarnation,
            )
        )

    def _detail(self, message: str | None) -> Sealed | None:
        """A message as it may be on the log; None where there is none, or no key to seal it."""
        if not message:
            return None
        seal, tenant = self._tools.runtime.seal, self._grant.tenant
        try:
            return seal.seal(tenant, message[:MESSAGE_CHARACTERS_MAX], "detail")
        except KeyStoreBroken as error:
            log_event(LOG, logging.WARNING, "attempt.detail_dropped", why=error)
            return None

    def _send(self, body: Message) -> Awaitable[None]:
        return self._tools.reports.fact(body, self._grant.tenant)

    def _stopping(self) -> bool:
        return self._target != "run"

    def _signal(self, process: WorkProcess) -> None:
        process.signal(signal.SIGKILL if self._target == "kill" else signal.SIGTERM)


def _stored_bytes(folder: Path) -> int:
    """Size of all files in a folder; files that appear or vanish meanwhile may be left out."""
    stored = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                stored += (Path(parent) / name).lstat().st_size
    return stored
