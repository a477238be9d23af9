"""One lease on this machine: fetch, start, listen, report, clean up.

Whatever goes wrong here is said in `ReportExit`; only then are the slots confirmed free. Nothing
is decided here: `pool` takes the first of contradicting facts and refuses the rest.
"""

import logging
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from schemas.pool import ConfirmFreed, ReportExit, ReportStarted
from schemas.training import AttemptOutcome, AttemptStart, FailureCause, Result
from schemas.units import Ms
from services.trainer.domain.state import Grant, Wish
from services.trainer.effect.reports import Reports
from services.trainer.ports import Child, Machine
from tunery.runtime.ports import Runtime
from tunery.runtime.telemetry.logs import log_event

WORDS_MAX: Final = 4_000  # characters of a failure's message: it goes on the log
EXIT_PREEMPTED: Final = 75  # said by the training process: told to stop, checkpointed
CAUSES: Final[frozenset[str]] = frozenset(
    ("oom", "divergence", "bad_data", "bad_node", "user", "platform")
)
LOG: Final = logging.getLogger(__name__)
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    outcome: AttemptOutcome
    cause: FailureCause | None = None
    message: str | None = None
    result: Result | None = None


class Program(Protocol):
    """What runs under a lease: one implementation per role."""

    async def prepare(self, folder: Path) -> tuple[str, ...]:
        """Fetch inputs, write the spec; arguments after the interpreter. Raises BlobError."""

    async def heard(self, line: Line, elapsed_ms: int) -> AttemptStart | None:
        """Take one line of the process; `AttemptStart` when it was the one that says so."""

    async def result(self) -> Result:
        """Upload what the finished process left. Raises BlobError."""


@dataclass(frozen=True)
class Tools:
    runtime: Runtime
    machine: Machine
    reports: Reports
    incarnation: str


class LeaseAttempt:
    """Runs one lease. `wish` may be called at any time, before the process exists as well."""

    def __init__(self, grant: Grant, tools: Tools, program: Program, folder: Path) -> None:
        self._grant, self._tools, self._program, self._folder = grant, tools, program, folder
        self._wish: Wish = "run"
        self._child: Child | None = None
        self._started_ms: int | None = None
        self._failed: Line | None = None
        self._quiet_since_ms: int | None = None  # while it has started and is listened to

    @property
    def idle_ms(self) -> Ms:
        if self._quiet_since_ms is None:
            return 0
        return self._tools.runtime.clock.monotonic_ms() - self._quiet_since_ms

    def wish(self, wish: Wish) -> None:
        if wish == self._wish:
            return
        self._wish = wish
        if self._child is not None:
            self._signal(self._child)

    async def run(self) -> None:
        try:
            ended = await self._run()
        except Exception as error:  # whatever it is: a lease without an end is billed to its cap
            log_event(LOG, logging.ERROR, "attempt failed", error, lease=self._grant.token.lease)
            ended = Ended("failed", "platform", str(error) or type(error).__name__)
        await self._report(ended)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _run(self) -> Ended:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        arguments = await self._program.prepare(self._folder)
        if self._stopping():
            return Ended("not_started")
        child = await self._tools.machine.start(
            (sys.executable, *arguments), _environment(), self._folder
        )
        self._child = child
        if self._stopping():  # since it started
            self._signal(child)
        try:
            async for text in child.lines():
                self._quiet_since_ms = None  # what it said may take long: an upload, an outage
                await self._hear(text)
                if self._started_ms is not None:
                    self._quiet_since_ms = self._tools.runtime.clock.monotonic_ms()
            status = await child.wait()
        except BaseException:
            child.signal(signal.SIGKILL)
            await child.wait()
            raise
        finally:
            self._child = self._quiet_since_ms = None
        return await self._judge(status, child.tail())

    async def _hear(self, text: bytes) -> None:
        line: Line = msgspec.json.decode(text, type=dict[str, Any])
        if line.get("type") == "failed":
            self._failed = line
        started = await self._program.heard(line, self._elapsed_ms())
        if started is None:
            return
        self._started_ms = self._tools.runtime.clock.monotonic_ms()
        await self._fact(
            ReportStarted(
                token=self._grant.token,
                incarnation=self._tools.incarnation,
                start=started,
            )
        )

    async def _judge(self, status: int, tail: str) -> Ended:
        if status == 0:
            return Ended("succeeded", result=await self._program.result())
        if status == EXIT_PREEMPTED or self._stopping():
            return Ended("preempted")
        if self._failed is not None and self._failed.get("cause") in CAUSES:
            advice = f" {self._failed.get('advice', '')}".rstrip()
            return Ended("failed", self._failed["cause"], f"{self._failed['message']}{advice}")
        last = tail.strip().splitlines()[-1:] or ["it said nothing"]
        return Ended("failed", "platform", f"the process ended with status {status}: {last[0]}")

    async def _report(self, ended: Ended) -> None:
        grant, sealer = self._grant, self._tools.runtime.seal
        words = None if ended.message is None else ended.message[:WORDS_MAX]
        await self._fact(
            ReportExit(
                token=grant.token,
                incarnation=self._tools.incarnation,
                outcome=ended.outcome,
                elapsed_ms=self._elapsed_ms(),
                cause=ended.cause,
                message=sealer.seal(grant.tenant, words) if words else None,
                result=ended.result,
            )
        )
        await self._fact(
            ConfirmFreed(
                token=grant.token,
                node_id=grant.node_id,
                incarnation=self._tools.incarnation,
            )
        )

    def _fact(self, body: Any) -> Awaitable[None]:
        return self._tools.reports.fact(body, self._grant.tenant)

    def _stopping(self) -> bool:
        return self._wish != "run"

    def _elapsed_ms(self) -> int:
        if self._started_ms is None:
            return 0
        return self._tools.runtime.clock.monotonic_ms() - self._started_ms

    def _signal(self, child: Child) -> None:
        child.signal(signal.SIGKILL if self._wish == "kill" else signal.SIGTERM)


def _environment() -> dict[str, str]:
    """The child's environment: nothing of ours that is secret, nothing that phones home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNERY_")}
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads made two slower than one
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
