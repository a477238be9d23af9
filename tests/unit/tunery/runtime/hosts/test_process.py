import asyncio
import logging

import pytest

from tunery.runtime.health import Health
from tunery.runtime.hosts import keeping, process
from tunery.runtime.hosts.keeping import HostUnstoppable, keep
from tunery.runtime.hosts.process import run_hosts
from tunery.runtime.journal.acceptance import Divergence
from tunery.runtime.watchdog import beat, watched_loop


class Script:
    """A host that raises what it is told, run by run, and then works until cancelled."""

    def __init__(self, name: str, *failures: BaseException, stops: list[str] | None = None) -> None:
        self.name = name
        self.runs = 0
        self._failures = list(failures)
        self._stops = stops if stops is not None else []
        self._ready = asyncio.Event()

    async def run(self) -> None:
        self.runs += 1
        if self._failures:
            raise self._failures.pop(0)
        self._ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            self._stops.append(self.name)

    async def ready(self) -> None:
        await self._ready.wait()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "BACKOFF_MS", 1)


async def test_a_host_that_fails_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    host = Script("one", ConnectionError("away"), KeyError("bug"))
    task = asyncio.create_task(keep(host))
    async with asyncio.timeout(5):
        await host.ready()
    task.cancel()
    await asyncio.wait((task,))
    assert host.runs == 3
    assert [record.getMessage() for record in caplog.records] == ["host.failed", "host.failed"]


async def test_a_host_that_diverged_stays_down_and_alerts(caplog: pytest.LogCaptureFixture) -> None:
    host = Script("one", Divergence("job", 3, 7, "the hash chain is broken"))
    async with asyncio.timeout(5):
        await keep(host)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.CRITICAL, "host.stopped_for_good")
    assert "job/3 at offset 7" in str(vars(record)["fields"]["why"])


async def test_hosts_stop_one_after_the_other_in_their_order() -> None:
    stops: list[str] = []
    hosts = [Script(name, stops=stops) for name in ("http", "projector", "owner")]
    stop = asyncio.Event()
    running = asyncio.create_task(run_hosts(hosts, stop, 1_000))
    for host in hosts:
        await host.ready()
    stop.set()
    await running
    assert stops == ["http", "projector", "owner"]


async def test_ready_is_said_once_all_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stop = asyncio.Event()
    slow = Script("slow", *(ConnectionError("not yet") for _ in range(3)))
    running = asyncio.create_task(run_hosts([Script("quick"), slow], stop, 1_000))
    await slow.ready()
    await asyncio.sleep(0.02)
    stop.set()
    await running
    said = [record for record in caplog.records if record.getMessage() == "ready"]
    assert [vars(record)["fields"] for record in said] == [{"hosts": "quick, slow"}]
    assert caplog.records[-1] is said[0]


async def test_a_host_that_does_not_stop_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(Script):
        async def run(self) -> None:
            self._ready.set()
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.2)

    host, stop = Stubborn("stubborn"), asyncio.Event()
    running = asyncio.create_task(run_hosts([host], stop, 50))
    await host.ready()
    stop.set()
    await running
    assert caplog.records[-1].getMessage() == "host.not_stopped"
    await asyncio.sleep(0.3)


# --- stray cancellations and hangs ----------------------------------------------------------------


async def until_healthy(health: Health) -> None:
    async with asyncio.timeout(5):
        while health.failing:  # noqa: ASYNC110  # it is a plain record
            await asyncio.sleep(0.005)


async def test_stray_cancellation_restarts_the_host_in_a_fresh_task(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "STEADY_MS", 40)
    states: list[int] = []

    class Cancelled(Script):
        async def run(self) -> None:
            task = asyncio.current_task()
            assert task is not None
            states.append(task.cancelling())
            if self.runs == 0:
                task.cancel()  # nothing takes it back, as a TaskGroup of 3.11 does not
            await super().run()

    host, health = Cancelled("one", asyncio.CancelledError("a leak")), Health()
    task = asyncio.create_task(keep(host, health))
    async with asyncio.timeout(5):
        await host.ready()
    assert dict(health.failing) == {"one": "cancelled"}
    await until_healthy(health)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert states == [0, 0]
    assert [record.getMessage() for record in caplog.records] == ["task.stray_cancellation"]


async def test_failed_host_is_unhealthy_until_it_has_run_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeping, "STEADY_MS", 40)
    host, health = Script("one", KeyError("bug")), Health()
    task = asyncio.create_task(keep(host, health))
    await host.ready()
    assert dict(health.failing) == {"one": "failed"}
    await until_healthy(health)
    task.cancel()
    await asyncio.wait((task,))


async def test_hung_host_is_reported_and_restarted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "LOOK_EVERY_MS", 10)
    monkeypatch.setattr(keeping, "STEADY_MS", 20)
    monkeypatch.setattr(keeping, "SILENCE_MS_MAX", 50)
    let_go = asyncio.Event()

    class Hangs(Script):
        async def run(self) -> None:
            self.runs += 1
            with watched_loop("the loop that hangs"):
                while True:
                    beat("working")
                    await (let_go.wait() if self.runs == 1 else asyncio.sleep(0.005))
                    self._ready.set()

    host, health = Hangs("one"), Health()
    task = asyncio.create_task(keep(host, health))
    async with asyncio.timeout(5):
        await host.ready()
    assert host.runs == 2
    assert dict(health.failing) == {"one": "hung"}
    await until_healthy(health)
    task.cancel()
    await asyncio.wait((task,))
    (record,) = caplog.records
    assert record.getMessage() == "host.hung"
    assert "the loop that hangs (working)" in str(vars(record)["fields"]["why"])


async def test_host_that_hangs_and_cannot_be_ended_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeping, "LOOK_EVERY_MS", 10)
    monkeypatch.setattr(keeping, "SILENCE_MS_MAX", 30)
    monkeypatch.setattr(process, "LEAVE_MS_MAX", 0)
    let_go = asyncio.Event()

    class Deaf(Script):
        async def run(self) -> None:
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue

    with pytest.raises(HostUnstoppable, match="deaf"):
        async with asyncio.timeout(5):
            await run_hosts([Deaf("deaf")], asyncio.Event(), 20)
    let_go.set()
    await asyncio.sleep(0)


async def test_host_is_kept_again_when_what_keeps_it_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host, stop = Script("one"), asyncio.Event()
    running = asyncio.create_task(run_hosts([host], stop, 1_000))
    await host.ready()
    (keeper,) = [task for task in asyncio.all_tasks() if task.get_name() == "keep one"]
    keeper.cancel()
    async with asyncio.timeout(5):
        while host.runs < 2:  # noqa: ASYNC110  # a count
            await asyncio.sleep(0.005)
    stop.set()
    await running
    assert [record.getMessage() for record in caplog.records] == ["host.keeper_lost"]
