import asyncio
import logging

import pytest
from prometheus_client import REGISTRY

from tests.unit.tunery.runtime.hosts.scripted_host import ScriptedHost
from tests.virtual_time import on_virtual_time
from tunery.runtime.backoff import Backoff
from tunery.runtime.health import FailureReason, Health
from tunery.runtime.hosts import keeping
from tunery.runtime.hosts.keeping import keep
from tunery.runtime.journal.acceptance import Divergence
from tunery.runtime.watchdog import beat, watched_loop


class NotedHealth(Health):
    """Health that remembers each failure, for a test that looks after the host has recovered."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[tuple[str, FailureReason]] = []

    def mark_failing(self, host: str, why: FailureReason) -> None:
        super().mark_failing(host, why)
        self.failures.append((host, why))


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "BACKOFF", Backoff(1, 3_000))


@on_virtual_time
async def test_a_host_that_fails_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    host = ScriptedHost("counted", ConnectionError("away"), KeyError("bug"))
    task = asyncio.create_task(keep(host))
    async with asyncio.timeout(180):
        await host.ready()
    labels = {"host": "counted"}
    assert REGISTRY.get_sample_value("tunery_host_restarts_total", labels) == 2
    assert REGISTRY.get_sample_value("tunery_host_hangs_total", labels) == 0
    task.cancel()
    await asyncio.wait((task,))
    assert host.runs == 3
    assert [record.getMessage() for record in caplog.records] == ["host.failed", "host.failed"]


@on_virtual_time
async def test_a_host_that_diverged_is_not_restarted(caplog: pytest.LogCaptureFixture) -> None:
    host = ScriptedHost("one", Divergence("job", 3, 7, "the hash chain is broken"))
    async with asyncio.timeout(180):
        await keep(host)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.CRITICAL, "host.stopped_for_good")
    assert "job/3 at offset 7" in str(vars(record)["fields"]["why"])


async def until_healthy(health: Health) -> None:
    async with asyncio.timeout(180):
        while health.failing:  # noqa: ASYNC110  # it is a plain record
            await asyncio.sleep(0.005)


@on_virtual_time
async def test_stray_cancellation_restarts_the_host_in_a_fresh_task(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "STEADY_MS", 40)
    states: list[int] = []

    class Cancelled(ScriptedHost):
        async def run(self) -> None:
            task = asyncio.current_task()
            assert task is not None
            states.append(task.cancelling())
            if self.runs == 0:
                task.cancel()  # nothing takes it back, as a TaskGroup of 3.11 does not
            await super().run()

    host, health = Cancelled("one", asyncio.CancelledError("a leak")), NotedHealth()
    task = asyncio.create_task(keep(host, health))
    async with asyncio.timeout(180):
        await host.ready()
    assert health.failures == [("one", "cancelled")]
    await until_healthy(health)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert states == [0, 0]
    assert [record.getMessage() for record in caplog.records] == ["task.stray_cancellation"]


@on_virtual_time
async def test_failed_host_is_unhealthy_until_it_has_run_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeping, "STEADY_MS", 40)
    host, health = ScriptedHost("one", KeyError("bug")), NotedHealth()
    task = asyncio.create_task(keep(host, health))
    await host.ready()
    assert health.failures == [("one", "failed")]
    await until_healthy(health)
    task.cancel()
    await asyncio.wait((task,))


@on_virtual_time
async def test_hung_host_is_reported_and_restarted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "LOOK_EVERY_MS", 10)
    monkeypatch.setattr(keeping, "STEADY_MS", 20)
    monkeypatch.setattr(keeping, "SILENCE_MS_MAX", 50)
    let_go = asyncio.Event()

    class Hangs(ScriptedHost):
        async def run(self) -> None:
            self.runs += 1
            with watched_loop("the loop that hangs"):
                while True:
                    beat("working")
                    await (let_go.wait() if self.runs == 1 else asyncio.sleep(0.005))
                    self._ready.set()

    host, health = Hangs("one"), NotedHealth()
    task = asyncio.create_task(keep(host, health))
    async with asyncio.timeout(180):
        await host.ready()
    assert host.runs == 2
    assert health.failures == [("one", "hung")]
    await until_healthy(health)
    task.cancel()
    await asyncio.wait((task,))
    (record,) = caplog.records
    assert record.getMessage() == "host.hung"
    assert "the loop that hangs (working)" in str(vars(record)["fields"]["why"])
