"""The watcher's process against real Kafka with accounts: killed in the middle, and in an outage.

The scheduler's process decides what becomes of what the watcher sends.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import msgspec
import pytest
import pytest_asyncio

from schemas.anomaly import AnomalyRecorded
from schemas.job import PlacementWanted
from schemas.streams import Topic
from schemas.telemetry import Step
from schemas.topics import JOB, TELEMETRY, WATCHES
from schemas.units import Ms
from services.watcher.domain.watch import PAUSES
from services.watcher.processor import Processor
from simulator.control_plane.samples import limits, submit
from tests.peers import peer_of
from tests.processes import Process, python_process
from tests.stacks import temporary_data_dir
from tests.unit.services.scheduler.lives import pinned, prepared
from tunery.local.ports import find_free
from tunery.local.stack import Stack, stack
from tunery.platform.connections import open_runtime
from tunery.platform.ports import Runtime
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.bus.abstract import BusError
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.history import read_history

pytestmark = pytest.mark.timeout(900)

TENANT: Final = "tenant-of-the-watcher"
WAIT_S: Final = 180
CALM: Final = tuple(1.0 + 0.01 * (step % 5) for step in range(24))
SPIKE: Final = (9.0,) * 6
STUCK_MS: Final = 6_000


@dataclass
class Trainings:
    """Telemetry of agents, and anomalies in the journal of `job`."""

    stack: Stack
    runtime: Runtime
    steps: Counter[str] = field(default_factory=Counter)

    async def begin(self, job_id: str) -> None:
        """A job with an open attempt; no node need run it."""
        commands = (
            submit(job_id, pool="pool-of-nobody"),
            prepared(job_id=job_id),
            pinned(job_id=job_id),
        )
        for body in (limits(), *commands):
            sender = peer_of(self.stack, self.runtime.log, JOB, body)
            await sender.send(JOB, TENANT, TENANT, body)

    async def train(
        self, job_id: str, losses: Sequence[float], pause_s: float = 0.0, speed: float = 100.0
    ) -> None:
        """Steps with these losses, as an agent reports them; each once, also through an outage."""
        for loss in losses:
            number = self.steps[job_id] = self.steps[job_id] + 1
            step = Step(
                tenant=TENANT,
                job_id=job_id,
                attempt=1,
                step=number,
                total_steps=10_000,
                loss=loss,
                accuracy=None,
                grad_norm=None,
                learning_rate=1e-4,
                tokens=number,
                elapsed_ms=number,
                tokens_per_s=speed,
                node_id=job_id.replace("ftjob", "node"),
                node_type="h200",
                work="the same",
            )
            keys = self.stack.settings.keys.sender_keys(f"node.{step.node_id}")
            await self.offer(job_id, keys.sign(TELEMETRY.name, msgspec.json.encode(step)))
            await asyncio.sleep(pause_s)

    async def offer(self, job_id: str, value: bytes, topic: Topic = TELEMETRY) -> None:
        """Send it until it is there, so perhaps more than once."""
        while True:
            try:
                await self.runtime.log.send(topic.name, job_id.encode(), value)
                return
            except BusError:
                await asyncio.sleep(0.2)

    async def recorded(self) -> Counter[tuple[str, str]]:
        """Job and kind of what the journal has."""
        recorded = [
            (event.job_id, event.anomaly.kind)
            async for entry in read_history(self.runtime.log, JOB)
            for event in entry.events
            if isinstance(event, AnomalyRecorded)
        ]
        return Counter[tuple[str, str]](recorded)

    async def await_recorded(self, *wanted: tuple[str, str], wait_s: float = WAIT_S) -> None:
        async with asyncio.timeout(wait_s):
            while True:
                if set(wanted) <= (await self.recorded()).keys():
                    return
                await asyncio.sleep(0.2)

    async def await_placed(self, jobs: int) -> None:
        """Wait until `jobs` jobs have an open attempt."""
        async with asyncio.timeout(WAIT_S):
            while True:
                placed = {
                    event.job_id
                    async for entry in read_history(self.runtime.log, JOB)
                    for event in entry.events
                    if isinstance(event, PlacementWanted)
                }
                if len(placed) >= jobs:
                    return
                await asyncio.sleep(0.1)


@pytest_asyncio.fixture
async def trainings() -> AsyncIterator[Trainings]:
    with temporary_data_dir() as folder:
        async with stack(folder, environ={}) as servers:
            values = {n.removeprefix("TUNERY_").lower(): v for n, v in servers.env.items()}
            async with open_runtime("agents", RuntimeSettings.model_validate(values)) as runtime:
                yield Trainings(servers, runtime)


async def test_anomalies_are_recorded_once_wherever_the_process_is_killed(
    trainings: Trainings,
) -> None:
    env = trainings.stack.settings.environment
    port = find_free(set())
    watching = {
        **env("watcher"),
        "TUNERY_WATCHER_WINDOW_MS": "1000",
        "TUNERY_WATCHER_STUCK_MS": str(STUCK_MS),
        "TUNERY_METRICS_PORT": str(port),
    }
    jobs = [f"ftjob-spikes-{number}" for number in range(6)]
    async with python_process(env("scheduler"), "-m", "services.scheduler") as scheduler:
        await scheduler.await_log_line("process.ready")
        for job_id in (*jobs, "ftjob-late", "ftjob-slow"):
            await trainings.begin(job_id)
        await trainings.await_placed(len(jobs) + 2)

        # Its process is killed while it folds, after it has sent, and before it has committed.
        training = asyncio.gather(
            *(trainings.train(job_id, (*CALM, *SPIKE), pause_s=0.1) for job_id in jobs),
            trainings.train("ftjob-slow", CALM * 4, pause_s=0.1, speed=60.0),
        )
        for life in range(3):
            async with python_process(watching, "-m", "services.watcher") as watcher:
                await watcher.await_log_line("process.ready")
                if life:
                    await watcher.await_log_line("anomaly.sent", kind="loss_spike")
                else:
                    await asyncio.sleep(0.5)
                await watcher.end(signal.SIGKILL)
            await trainings.train(jobs[life], CALM)  # so that the next one has something to say
            await trainings.train(jobs[life], SPIKE)
        await training
        without_port = {n: v for n, v in watching.items() if n != "TUNERY_METRICS_PORT"}
        async with (
            python_process(watching, "-m", "services.watcher") as watcher,
            python_process(without_port, "-m", "services.watcher") as second,
        ):
            await watcher.await_log_line("process.ready")
            await second.await_log_line("process.ready")
            await second.end(signal.SIGKILL)  # the other one takes its partitions over
            await trainings.await_recorded(
                *((job_id, "loss_spike") for job_id in jobs), ("ftjob-slow", "slow_node")
            )
            probe(port)
            await live_through_an_outage(trainings, watcher)
            assert await watcher.end(signal.SIGTERM) == 0
    await each_window_is_there_once(trainings)


async def test_first_hour2_u26_p4_a_processor_leaves_nothing_out_and_is_quiet_when_idle(
    trainings: Trainings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Faust reads on from before it resumes where it has a table to read again.

    No stream reads the changelog of a table, and Faust's watchdog would report it for ever.
    """
    await trainings.offer("ftjob-late", b"a change of before", WATCHES)
    await trainings.train("ftjob-late", CALM)
    processor = Processor(trainings.runtime.settings, tmp_path)
    steps, arrived, resumed = set[int](), asyncio.Event(), asyncio.Event()

    async def take(_key: bytes, value: bytes, _at: Ms) -> None:
        arrived.set()
        await resumed.wait()
        steps.add(msgspec.json.decode(value, type=Step).step)

    async def seek_slowly(seek: Callable[[], Awaitable[None]]) -> None:
        await seek()
        await arrived.wait()

    consumer = processor._app.consumer
    monkeypatch.setattr(consumer, "perform_seek", partial(seek_slowly, consumer.perform_seek))
    processor.on_records(TELEMETRY, take)
    await processor.start()
    resumed.set()
    async with asyncio.timeout(WAIT_S):
        while len(steps) < len(CALM):  # noqa: ASYNC110  # `take` is the only one that knows
            await asyncio.sleep(0.05)
    in_a_day = time.monotonic() + 86_400
    assert any(at.topic == WATCHES.name for at in consumer.assignment())
    caplog.clear()
    for at in consumer.assignment():
        consumer.verify_event_path(in_a_day, at)  # type: ignore[attr-defined]  # its type lacks it
    assert caplog.messages == []
    await processor.stop()
    assert steps == {*range(1, len(CALM) + 1)}


async def live_through_an_outage(trainings: Trainings, watcher: Process) -> None:
    """Kafka is away for longer than silence may last: that is no silence of a job. Then one is."""
    await trainings.offer("ftjob-late", b"{garbage")
    await trainings.train("ftjob-late", CALM, pause_s=0.05)
    before = await trainings.recorded()
    assert ("ftjob-late", "stuck") not in before
    begun = time.monotonic()
    await trainings.stack.stop("kafka")
    await asyncio.sleep(1.5 * STUCK_MS / 1_000)
    await trainings.stack.start("kafka")
    await trainings.train("ftjob-late", SPIKE)
    pause_s = time.monotonic() - begun  # and longer where Kafka starts slowly
    await trainings.await_recorded(("ftjob-late", "loss_spike"))
    assert ("ftjob-late", "stuck") not in await trainings.recorded()
    await trainings.await_recorded(("ftjob-late", "stuck"), wait_s=PAUSES * pause_s + WAIT_S)
    assert watcher.process.returncode is None


async def each_window_is_there_once(trainings: Trainings) -> None:
    """However often it was sent."""
    keys = Counter[tuple[str, str]]()
    async for entry in read_history(trainings.runtime.log, JOB):
        for event in entry.events:
            if isinstance(event, AnomalyRecorded):
                keys[event.job_id, event.anomaly.key] += 1
    assert set(keys.values()) == {1}
    start, end = await trainings.runtime.log.bounds(WATCHES.name, partition_of(b"ftjob-late"))
    assert start < end


def probe(port: int) -> None:
    for path in ("healthz", "readyz", "metrics"):
        with urlopen(f"http://127.0.0.1:{port}/{path}") as response:  # of this test
            assert response.status == 200
            text = response.read().decode()
    assert 'tunery_anomalies_total{kind="loss_spike"}' in text
