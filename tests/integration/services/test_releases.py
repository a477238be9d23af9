"""A release beside the one before on real servers, under load, and the way back until `finalize`.

The release before is today's code, as it is. `tests/next_release.py` is today's with one more
level.
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio

from schemas import errors
from schemas.envelope import Entry
from schemas.job import PauseJob
from schemas.streams import PARTITIONS
from schemas.topics import JOB
from simulator.control_plane.samples import limits, submit
from tests.peers import peer_of
from tests.processes import ROOT, Process, python_process
from tests.stacks import temporary_data_dir
from tunery.local.stack import Stack, stack
from tunery.platform.bus.kafka import KafkaLog
from tunery.runtime.bus.reading import records_now
from tunery.runtime.journal.codec import decode_record

pytestmark = pytest.mark.timeout(1_800)

WAIT_S: Final = 120
TENANTS: Final = tuple(f"tenant-{number}" for number in range(6))
OWNERS: Final = ("billing", "ingest", "registry", "scheduler")
MORE: Final = 12  # submissions in each phase


@dataclass
class Installation:
    """Servers, the load on them, and the processes of both releases."""

    servers: Stack
    log: KafkaLog
    submitted: list[str] = field(default_factory=list)  # ids of commands

    async def submit_jobs(self) -> None:
        """Submit for ever, as clients do."""
        number = 0
        for tenant in TENANTS:
            body = limits()
            await peer_of(self.servers, self.log, JOB, body).send(JOB, tenant, tenant, body)
        while True:
            tenant = TENANTS[number % len(TENANTS)]
            self.submitted.append(await self.send(tenant, submit(f"ftjob-{number}")))
            number += 1
            await asyncio.sleep(0.3)

    async def send(self, tenant: str, body: Any) -> str:
        return await peer_of(self.servers, self.log, JOB, body).send(JOB, tenant, tenant, body)

    async def decided(self) -> dict[str, list[dict[str, Any]]]:
        """Events by command, as they are on the log: no release is asked what it can read."""
        events: dict[str, list[dict[str, Any]]] = {}
        for partition in range(PARTITIONS):
            async for record in records_now(self.log, JOB.journal.name, partition):
                entry = decode_record(record.value)
                if isinstance(entry, Entry):
                    events[entry.command_id] = [msgspec.json.decode(raw) for raw in entry.events]
        return events

    async def types(self) -> Counter[str]:
        decided = await self.decided()
        return Counter(event["type"] for events in decided.values() for event in events)

    async def live_on(self) -> None:
        """Wait until what is submitted from now on is decided, and nothing before is left out."""
        wanted = len(self.submitted) + MORE
        async with asyncio.timeout(WAIT_S):
            while len(self.submitted) < wanted:  # noqa: ASYNC110  # the load goes on
                await asyncio.sleep(0.2)
            sent = self.submitted[:wanted]
            while not (await self.decided()).keys() >= set(sent):  # noqa: ASYNC110  # it reads a log
                await asyncio.sleep(0.5)

    async def answer(self, tenant: str, body: Any) -> dict[str, Any]:
        """The first event that a command leads to."""
        command_id = await self.send(tenant, body)
        async with asyncio.timeout(WAIT_S):
            while command_id not in (decided := await self.decided()):  # noqa: ASYNC110  # the same
                await asyncio.sleep(0.5)
        return decided[command_id][0]

    @asynccontextmanager
    async def old(self, service: str) -> AsyncIterator[Process]:
        environment = self.servers.settings.environment(service)
        async with python_process(environment, "-m", f"services.{service}") as process:
            yield process

    @asynccontextmanager
    async def new(self, service: str) -> AsyncIterator[Process]:
        environment = self.servers.settings.environment(service)
        async with python_process(environment, "-m", "tests.next_release", service) as process:
            yield process

    async def tunery(self, *words: str) -> tuple[int, str]:
        """Exit code and output of a command of the next release."""
        where = ("--data-dir", str(self.servers.folders.root))
        command = (sys.executable, "-m", "tests.next_release", "tunery", *words, *where)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
        return process.returncode or 0, output.decode()


@pytest_asyncio.fixture
async def installation() -> AsyncIterator[Installation]:
    with temporary_data_dir() as folder:
        async with stack(folder, environ={}) as servers:
            log = KafkaLog(servers.kafka_as())
            yield Installation(servers, log)
            await log.close()


def stops(*processes: Process) -> list[dict[str, Any]]:
    """Log lines about records that processes could not read."""
    return [
        line for each in processes for line in each.lines if line["event"] == "partition.stopped"
    ]


async def test_a_release_comes_beside_the_one_before_and_goes_back_until_it_is_finalized(
    installation: Installation,
) -> None:
    async with (
        installation.old("notifier") as reader,
        installation.old("scheduler") as old,
        AsyncExitStack() as later,
    ):
        await old.await_log_line("process.ready")
        await reader.await_log_line("process.ready")
        load = asyncio.create_task(installation.submit_jobs())
        later.callback(load.cancel)
        await installation.live_on()

        # Who writes comes first, which is the worse order: nothing new is written but what may be
        # skipped, and the upgrade cannot be finished.
        async with installation.new("scheduler") as new:
            await new.await_log_line("process.ready")
            await installation.live_on()
            code, output = await installation.tunery("upgrade", "finalize")
            assert code == 1
            assert f"{old_name(output, 'scheduler')}: release 0.1.0 reads up to level 1" in output
            assert "billing: no process of it runs" in output
            assert await new.end(signal.SIGTERM) == 0
        written = await installation.types()
        assert written["JobRemarked.v1"] > 0
        assert written["JobGreeted.v1"] == 0

        # The way back: the release before owns all partitions again.
        await installation.live_on()
        assert stops(reader, old) == []

        # Who reads comes first, then all others; those of the release before end.
        new_ones = {
            service: await later.enter_async_context(installation.new(service))
            for service in ("notifier", *OWNERS)
        }
        for process in new_ones.values():
            await process.await_log_line("process.ready")
        assert await reader.end(signal.SIGTERM) == await old.end(signal.SIGTERM) == 0
        await installation.live_on()
        refused = await installation.answer(TENANTS[0], PauseJob(job_id="ftjob-0"))
        assert (refused["type"], refused["code"]) == ("Rejected.v1", errors.LEVEL_TOO_LOW)

        code, output = await installation.tunery("upgrade", "status", "--json")
        assert json.loads(output)["waited_for"] == [], output
        code, output = await installation.tunery("upgrade", "finalize")
        assert (code, output) == (0, "the log is raised from level 1 to 2\n")
        await installation.live_on()
        await installation.live_on()
        assert (await installation.types())["JobGreeted.v1"] > 0
        greeted = await installation.answer(TENANTS[0], PauseJob(job_id="ftjob-0"))
        assert greeted["type"] == "JobGreeted.v1"

        code, output = await installation.tunery("doctor", "--upgrade")
        assert code == 0, output
        assert "all run next" in output
        assert "the log is at level 2" in output

        # There is no way back now: the release before says so, and touches nothing.
        async with installation.old("scheduler") as late:
            line = await late.await_log_line("process.release_too_old")
            assert "raised to level 2, and this release reads up to 1" in line["why"]
            assert await asyncio.wait_for(late.process.wait(), WAIT_S) == 2
        await installation.live_on()
        assert stops(*new_ones.values()) == []
        assert load.done() is False


def old_name(output: str, service: str) -> str:
    """The name of the service's process that runs the release before, as the output has it."""
    [line] = [line for line in output.splitlines() if f"  {service}@" in line and "0.1.0" in line]
    return line.strip().partition(": ")[0]
