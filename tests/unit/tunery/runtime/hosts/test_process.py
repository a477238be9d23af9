import asyncio
import logging

import pytest

from tunery.runtime.hosts import process
from tunery.runtime.hosts.process import keep, run_hosts
from tunery.runtime.journal.acceptance import Divergence


class Script:
    """A host that raises what it is told, run by run, and then works until cancelled."""

    def __init__(self, name: str, *failures: Exception, stops: list[str] | None = None) -> None:
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
    monkeypatch.setattr(process, "BACKOFF_MS", 1)


async def test_a_host_that_fails_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    host = Script("one", ConnectionError("away"), KeyError("bug"))
    task = asyncio.create_task(keep(host))
    async with asyncio.timeout(5):
        await host.ready()
    task.cancel()
    await asyncio.wait((task,))
    assert host.runs == 3
    assert [record.getMessage() for record in caplog.records] == ["host failed", "host failed"]


async def test_a_host_that_diverged_stays_down_and_alerts(caplog: pytest.LogCaptureFixture) -> None:
    host = Script("one", Divergence("job", 3, 7, "the hash chain is broken"))
    async with asyncio.timeout(5):
        await keep(host)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.CRITICAL, "host stopped for good")
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
    assert caplog.records[-1].getMessage() == "host did not stop in time"
    await asyncio.sleep(0.3)
