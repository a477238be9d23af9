"""One lease, with a process that does what a test says: what is reported, in which order."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.envelope import Message
from schemas.pool import ConfirmFreed, ReportExit, ReportStarted
from schemas.training import AttemptStart, EvalResult
from services.trainer.effect import attempt as leases
from services.trainer.effect.attempt import LeaseAttempt
from services.trainer.effect.environment import process_environment
from services.trainer.effect.lease_keys import KeysMissing, LeaseKeys
from services.trainer.effect.program import Tools
from services.trainer.effect.reports import Reports
from services.trainer.ports import NO_ACCESS, Access
from tests.log_lines import logged
from tests.unit.services.trainer.domain.test_evolve import grant
from tests.unit.services.trainer.effect.machines import Script, ScriptProgram, settings
from tests.unit.services.trainer.effect.outages import SleepClock
from tests.unit.tunery.work.samples import STARTED
from tunery.platform.memory_servers import memory_servers
from tunery.platform.seal.handed import LeaseSealer
from tunery.runtime.telemetry.trail import Trail, trail_context
from tunery.work.codec import encode_event
from tunery.work.events import Failed
from tunery.work.exits import ExitCode

STARTED_LINE = encode_event(STARTED, 0)
KILLED = -int(signal.SIGKILL)


class FakeProcess:
    """Prints lines, then ends with a status, or waits until it is signalled."""

    def __init__(
        self, lines: Sequence[bytes], status: int | None, errors: str, drained: int
    ) -> None:
        self.pid = 7
        self.bytes_read = 0
        self.signals: list[int] = []
        self.is_idle = asyncio.Event()  # it has printed all that it prints
        self._lines, self._errors, self._drained = lines, errors, drained
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if status is not None:
            self._status.set_result(status)

    async def lines(self) -> AsyncIterator[bytes]:
        for line in self._lines:
            yield line
        self.is_idle.set()
        await asyncio.wait((self._status,))

    def signal(self, number: int) -> None:
        self.signals.append(number)
        if not self._status.done():
            self._status.set_result(KILLED if number == signal.SIGKILL else self._drained)

    async def wait(self) -> int:
        return await asyncio.shield(self._status)

    def read_bytes(self) -> int:
        return self.bytes_read

    def error_tail(self) -> str:
        return self._errors


class Launcher:
    """Starts one FakeProcess. `on_start` is called while it starts."""

    def __init__(self) -> None:
        self.lines: Sequence[bytes] = (STARTED_LINE,)
        self.status: int | None = 0
        self.errors = ""
        self.drained = int(ExitCode.PREEMPTED)
        self.on_start: Callable[[], None] = lambda: None
        self.processes: list[FakeProcess] = []
        self.is_idle = asyncio.Event()
        self.environment: Mapping[str, str] = {}
        self.memory_kills: list[int | None] = [None, None]  # before it starts, after its end

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        access: Access = NO_ACCESS,
    ) -> FakeProcess:
        self.environment = environment
        self.on_start()
        process = FakeProcess(self.lines, self.status, self.errors, self.drained)
        process.is_idle = self.is_idle
        self.processes.append(process)
        return process

    async def sweep(self) -> int:
        return 0


class KeptReports(Reports):
    """Keeps the facts. The first of a kind in `lost` does not arrive: its sender is cancelled."""

    facts: list[Message]
    lost: type[Message] | None = None

    async def fact(self, body: Message, tenant: str = "") -> None:
        await asyncio.sleep(0)
        if self.lost is not None and isinstance(body, self.lost):
            self.lost = None
            raise asyncio.CancelledError
        self.facts.append(body)


class GivenKeys(LeaseKeys):
    """Keys that have come, or the error that says why not."""

    missing: KeysMissing | None = None

    async def fetch(self, is_unwanted: Callable[[], bool]) -> None:
        if self.missing is not None:
            raise self.missing


class Lease:
    """A lease on a node of which only the process is made up."""

    def __init__(
        self, folder: Path, launcher: Launcher, reports: KeptReports, tools: Tools
    ) -> None:
        self.launcher, self.reports, self.clock = launcher, reports, tools.runtime.clock
        self.folder, self.tools = folder / "1", tools
        self.script = Script()
        program = ScriptProgram(grant(), tools, settings(folder), self.script)
        self.keys = GivenKeys(grant(), "a1", tools.runtime, reports)
        self.attempt = LeaseAttempt(grant(), tools, program, self.folder, self.keys)

    @property
    def exit(self) -> ReportExit:
        """The report of its end, which comes before that its slots are free."""
        *_, reported, freed = self.reports.facts
        assert isinstance(reported, ReportExit)
        assert isinstance(freed, ConfirmFreed)
        assert reported.token == freed.token == grant().token
        return reported

    def detail(self) -> str:
        assert self.exit.detail is not None
        return self.tools.runtime.seal.open(self.exit.detail, "detail")


@pytest.fixture
async def lease(tmp_path: Path) -> Lease:
    runtime = (await memory_servers(SleepClock())).runtime("trainer")
    launcher, reports = Launcher(), KeptReports(runtime, "default")
    reports.facts = []
    tools = Tools(runtime, launcher, reports, "a1", lambda: launcher.memory_kills.pop(0))
    return Lease(tmp_path, launcher, reports, tools)


async def test_a_lease_is_started_ended_and_freed_in_this_order(lease: Lease) -> None:
    await lease.attempt.run()
    assert [type(fact) for fact in lease.reports.facts] == [ReportStarted, ReportExit, ConfirmFreed]
    assert (lease.exit.outcome, lease.exit.cause) == ("succeeded", None)
    assert isinstance(lease.exit.result, EvalResult)
    assert not lease.folder.exists(), "data of a tenant stays no longer than its lease"


async def test_without_keys_nothing_starts_and_the_report_says_so(lease: Lease) -> None:
    lease.keys.missing = KeysMissing("no keys came within 300 s")
    await lease.attempt.run()
    assert (lease.exit.outcome, lease.exit.cause) == ("failed", "platform")
    assert (lease.exit.keyless, lease.exit.detail) == (True, None)
    assert lease.launcher.processes == []


async def test_a_message_that_cannot_be_sealed_is_dropped(lease: Lease) -> None:
    runtime = replace(lease.tools.runtime, seal=LeaseSealer("acme"))
    tools = replace(lease.tools, runtime=runtime)
    lease.script.failure = OSError("disk full")
    program = ScriptProgram(grant(), tools, settings(lease.folder.parent), lease.script)
    await LeaseAttempt(grant(), tools, program, lease.folder, lease.keys).run()
    assert (lease.exit.outcome, lease.exit.detail) == ("failed", None)


async def test_rests_of_an_earlier_run_are_no_input(lease: Lease) -> None:
    lease.folder.mkdir(parents=True)
    (lease.folder / "spec.json").write_text("{}")
    seen: list[Path] = []
    lease.launcher.on_start = lambda: seen.extend(lease.folder.iterdir())
    await lease.attempt.run()
    assert (seen, lease.exit.outcome) == ([], "succeeded")


async def test_a_lease_that_ended_before_its_process_was_there_is_not_started(lease: Lease) -> None:
    lease.attempt.set_target("kill")
    await lease.attempt.run()
    assert (lease.exit.outcome, lease.launcher.processes) == ("not_started", [])
    assert lease.exit.elapsed_ms == 0


@pytest.mark.parametrize(("target", "sent"), [("drain", signal.SIGTERM), ("kill", signal.SIGKILL)])
async def test_an_order_that_comes_while_the_process_starts_reaches_it(
    target: Any, sent: signal.Signals, lease: Lease
) -> None:
    lease.launcher.status = None
    lease.launcher.on_start = lambda: lease.attempt.set_target(target)
    await lease.attempt.run()
    assert lease.launcher.processes[0].signals == [sent]
    assert lease.exit.outcome == "preempted"


async def test_the_same_order_is_sent_once_and_a_harder_one_after_it(lease: Lease) -> None:
    lease.launcher.status = None
    running = asyncio.create_task(lease.attempt.run())
    await lease.launcher.is_idle.wait()
    for target in ("drain", "drain", "kill", "kill"):
        lease.attempt.set_target(target)
    await running
    assert lease.launcher.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize(
    ("status", "errors", "lines", "cause", "detail"),
    [
        (1, "Traceback\nKeyError: 'x'\n\n", (), "platform", "status 1: KeyError: 'x'"),
        (-15, "", (), "platform", "status -15: its standard error is empty"),
        (
            int(ExitCode.OOM),
            "noise",
            (Failed(cause="oom", message="out of memory", advice="Lower batch_size."),),
            "oom",
            "out of memory Lower batch_size.",
        ),
        (1, "", (Failed(cause="bad_data", message="no rows", advice=""),), "bad_data", "no rows"),
    ],
)
async def test_a_failure_says_what_the_process_said_last(
    status: int,
    errors: str,
    lines: tuple[Failed, ...],
    cause: str,
    detail: str,
    lease: Lease,
) -> None:
    lease.launcher.status, lease.launcher.errors = status, errors
    lease.launcher.lines = (STARTED_LINE, *(encode_event(line, 0) for line in lines))
    await lease.attempt.run()
    assert (lease.exit.outcome, lease.exit.cause) == ("failed", cause)
    assert lease.detail().endswith(detail)


@pytest.mark.parametrize(
    ("begun", "errors", "cause"),
    [
        (True, "", "oom"),
        (True, "CUDA driver version mismatch\nnvml", "bad_node"),
        (False, "", "oom"),  # while it loads the model, or in its trial step
    ],
)
async def test_training_m11_an_unrequested_kill_is_out_of_memory(
    begun: bool, errors: str, cause: str, lease: Lease
) -> None:
    """Finding M11: the kernel's kill was `platform`, four attempts of the same size."""
    lease.launcher.status, lease.launcher.errors = KILLED, errors
    lease.launcher.lines = (STARTED_LINE,) if begun else ()
    await lease.attempt.run()
    assert (lease.exit.outcome, lease.exit.cause) == ("failed", cause)
    if cause == "oom":
        assert "status -9: its standard error is empty" in lease.detail()
        assert "when memory runs out" in lease.detail()


@pytest.mark.parametrize(
    ("counts", "cause", "words"),
    [
        ([3, 3], "platform", "Neither its agent nor the kernel killed it"),
        ([3, 4], "oom", "has killed processes for lack of memory (1)"),
        ([None, 3], "oom", "when memory runs out"),
        ([3, None], "oom", "when memory runs out"),
    ],
)
async def test_training_m11_the_count_of_the_kernel_decides_whether_memory_ran_out(
    counts: list[int | None], cause: str, words: str, lease: Lease
) -> None:
    """Finding M11: a kill by hand was `oom`, whose smaller micro-batches give other bytes."""
    lease.launcher.status, lease.launcher.memory_kills = KILLED, counts
    await lease.attempt.run()
    assert (lease.exit.outcome, lease.exit.cause) == ("failed", cause)
    assert "status -9" in lease.detail()
    assert words in lease.detail()


async def test_training_m11_a_kill_that_was_asked_for_is_none(lease: Lease) -> None:
    lease.launcher.status = None
    running = asyncio.create_task(lease.attempt.run())
    await lease.launcher.is_idle.wait()
    lease.attempt.set_target("kill")
    await running
    assert (lease.exit.outcome, lease.exit.cause) == ("preempted", None)


async def test_a_process_that_says_it_finished_and_was_stopped_has_finished(lease: Lease) -> None:
    """Its result was paid for: an order that came too late takes nothing away."""
    lease.launcher.drained, lease.launcher.status = int(ExitCode.FINISHED), None
    lease.launcher.on_start = lambda: lease.attempt.set_target("drain")
    await lease.attempt.run()
    assert lease.exit.outcome == "succeeded"


async def test_a_long_message_is_cut_before_it_goes_on_the_log(lease: Lease) -> None:
    lease.launcher.status, lease.launcher.errors = 1, "x" * 1_000_000
    await lease.attempt.run()
    assert len(lease.detail()) == leases.MESSAGE_CHARACTERS_MAX


async def test_a_lost_report_is_sent_again_and_the_work_is_not(lease: Lease) -> None:
    lease.reports.lost = ReportExit
    await lease.attempt.run()
    assert (lease.exit.outcome, len(lease.launcher.processes)) == ("succeeded", 1)


async def test_work_that_was_cut_off_is_reported_and_not_done_again(lease: Lease) -> None:
    """The agent runs a lease again after a stray cancellation, which has ended its process."""
    lease.launcher.status = None
    running = asyncio.create_task(lease.attempt.run())
    await lease.launcher.is_idle.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert lease.launcher.processes[0].signals == [signal.SIGKILL], "its slots are not free before"
    await lease.attempt.run()
    assert (lease.exit.outcome, lease.exit.cause) == ("failed", "platform")
    assert "was cut off" in lease.detail()
    assert len(lease.launcher.processes) == 1


async def test_money_a1_elapsed_time_counts_from_the_start_and_stands_still_after_the_end(
    lease: Lease,
) -> None:
    """Finding A1: a lease is billed by it, so neither loading nor the report's delay is in it."""
    lease.launcher.status = None
    await lease.clock.sleep(5_000)  # the inputs are fetched
    assert lease.attempt.elapsed_ms == lease.attempt.idle_ms == 0
    running = asyncio.create_task(lease.attempt.run())
    await lease.launcher.is_idle.wait()
    await lease.clock.sleep(3_000)
    assert (lease.attempt.elapsed_ms, lease.attempt.idle_ms) == (3_000, 3_000)
    lease.attempt.set_target("kill")
    await running
    await lease.clock.sleep(60_000)
    assert (lease.attempt.elapsed_ms, lease.attempt.idle_ms) == (3_000, 0)
    assert lease.exit.elapsed_ms == 3_000


async def test_a_process_gets_the_environment_of_its_lease(lease: Lease) -> None:
    await lease.attempt.run()
    assert lease.launcher.environment == process_environment(grant(), ())


async def test_an_event_that_is_none_ends_the_process(lease: Lease) -> None:
    lease.launcher.lines, lease.launcher.status = (b"not JSON",), None
    await lease.attempt.run()
    assert lease.launcher.processes[0].signals == [signal.SIGKILL]
    assert (lease.exit.outcome, lease.exit.cause) == ("failed", "platform")
    assert AttemptStart not in map(type, lease.reports.facts)


async def test_sched_b13_what_is_fetched_and_read_before_the_start_counts_as_preparation(
    lease: Lease,
) -> None:
    lease.launcher.lines, lease.launcher.status = (), None
    assert lease.attempt.prepared_bytes() == 0
    running = asyncio.create_task(lease.attempt.run())
    await lease.launcher.is_idle.wait()
    (lease.folder / "resume").mkdir()
    (lease.folder / "resume" / "weights").write_bytes(bytes(100))
    lease.launcher.processes[0].bytes_read = 7
    assert lease.attempt.prepared_bytes() == 107
    lease.attempt.set_target("kill")
    await running
    assert lease.attempt.prepared_bytes() == 107, "it never shrinks"


async def test_the_life_of_an_attempt_is_logged_without_what_its_tenant_wrote(lease: Lease) -> None:
    lease.launcher.status = 1
    lease.launcher.errors = (
        '  File "/base/trl/train.py", line 8, in step\nValueError: my secret diagnosis\n'
    )
    with logged("trainer") as lines, trail_context(Trail("req_1")):
        await lease.attempt.run()
    events = [line["event"] for line in lines.all()]
    assert events == [
        "attempt.preparing",
        "attempt.process_started",
        "attempt.started",
        "attempt.ended",
    ]
    for line in lines.all():
        assert (line["job_id"], line["attempt"]) == (grant().job_id, grant().attempt)
        assert (line["tenant"], line["request_id"]) == (grant().tenant, "req_1")
    (ended,) = lines.of("attempt.ended")
    assert (ended["outcome"], ended["cause"], ended["status"]) == ("failed", "platform", 1)
    assert ended["stderr"] == "base/trl/train.py:8 step\nValueError"
    assert "diagnosis" in lease.detail()
    assert "diagnosis" not in lines.text()


async def test_what_the_pool_wants_of_an_attempt_is_logged(lease: Lease) -> None:
    lease.launcher.status = None
    with logged("trainer") as lines:
        lease.launcher.on_start = lambda: lease.attempt.set_target("drain")
        await lease.attempt.run()
    (target,) = lines.of("attempt.target_set")
    assert (target["target"], target["job_id"]) == ("drain", grant().job_id)
    assert lines.of("attempt.ended")[0]["outcome"] == "preempted"
