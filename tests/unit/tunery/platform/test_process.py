import asyncio
import logging

import pytest

from tests.unit.tunery.runtime.hosts.scripted_host import ScriptedHost
from tests.unit.tunery.runtime.strays import cancel_by_mistake, tasks_called, until
from tests.virtual_time import on_virtual_time
from tunery.platform import process
from tunery.platform.process import run_hosts
from tunery.runtime.backoff import Backoff
from tunery.runtime.hosts import keeping
from tunery.runtime.hosts.keeping import HostUnstoppable


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "BACKOFF", Backoff(1, 3_000))


@on_virtual_time
async def test_hosts_stop_one_after_the_other_in_their_order() -> None:
    stops: list[str] = []
    hosts = [ScriptedHost(name, stops=stops) for name in ("http", "projector", "owner")]
    stop = asyncio.Event()
    running = asyncio.create_task(run_hosts(hosts, stop, 1_000))
    for host in hosts:
        await host.ready()
    stop.set()
    await running
    assert stops == ["http", "projector", "owner"]


@on_virtual_time
async def test_ready_is_logged_once_all_hosts_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stop = asyncio.Event()
    slow = ScriptedHost("slow", *(ConnectionError("not yet") for _ in range(3)))
    running = asyncio.create_task(run_hosts([ScriptedHost("quick"), slow], stop, 1_000))
    await slow.ready()
    await asyncio.sleep(0.02)
    stop.set()
    await running
    said = [record for record in caplog.records if record.getMessage() == "process.ready"]
    assert [vars(record)["fields"] for record in said] == [{"hosts": "quick, slow"}]
    assert caplog.records[-1] is said[0]


@on_virtual_time
async def test_a_host_that_does_not_stop_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(ScriptedHost):
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


@on_virtual_time
async def test_host_that_hangs_and_cannot_be_ended_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeping, "LOOK_EVERY_MS", 10)
    monkeypatch.setattr(keeping, "SILENCE_MS_MAX", 30)
    monkeypatch.setattr(process, "LEAVE_MS_MAX", 0)
    let_go = asyncio.Event()

    class Deaf(ScriptedHost):
        async def run(self) -> None:
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue

    with pytest.raises(HostUnstoppable, match="deaf"):
        async with asyncio.timeout(180):
            await run_hosts([Deaf("deaf")], asyncio.Event(), 20)
    let_go.set()
    await asyncio.sleep(0)


@on_virtual_time
async def test_host_is_kept_again_when_what_keeps_it_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host, stop = ScriptedHost("one"), asyncio.Event()
    running = asyncio.create_task(run_hosts([host], stop, 1_000))
    await host.ready()
    (keeper,) = [task for task in asyncio.all_tasks() if task.get_name() == "keep one"]
    keeper.cancel()
    async with asyncio.timeout(180):
        while host.runs < 2:  # noqa: ASYNC110  # a count
            await asyncio.sleep(0.005)
    stop.set()
    await running
    assert [record.getMessage() for record in caplog.records] == ["host.keeper_lost"]


@on_virtual_time
async def test_process_is_announced_and_stops_though_its_own_tasks_were_cancelled_by_mistake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    host, stop = SlowHost("slow"), asyncio.Event()
    running = asyncio.create_task(run_hosts([host], stop, 1_000))
    await until(lambda: len(tasks_called("announce", "stop")) == 2)
    for name in ("announce", "stop"):
        cancel_by_mistake(name)
    host.let_go.set()
    await until(lambda: any(r.getMessage() == "process.ready" for r in caplog.records))
    await until(lambda: bool(tasks_called("stop")))
    cancel_by_mistake("stop")
    stop.set()
    async with asyncio.timeout(180):
        await running
    assert host.runs == 1


class SlowHost(ScriptedHost):
    """A host that is not ready before `let_go` is set."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.let_go = asyncio.Event()

    async def ready(self) -> None:
        await self.let_go.wait()
