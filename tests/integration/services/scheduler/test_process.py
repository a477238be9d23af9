"""The scheduler against real Kafka: an outage ends no lease, a dead node does."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from schemas.job import AttemptEnded, JobSubmitted, PlacementWanted
from schemas.pool import LeaseGranted, NodeLost
from schemas.streams import Stream
from schemas.telemetry import Heartbeat
from schemas.topics import HEARTBEATS, JOB, POOL
from simulator.control_plane.samples import limits, node, submit
from tests.peers import peer_of
from tests.unit.services.scheduler.lives import JOB_ID, pinned, prepared
from tunery.local.stack import Stack
from tunery.platform.bus.sender_keys import NODES
from tunery.platform.connections import open_runtime
from tunery.platform.ports import Runtime
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.bus.abstract import BusError
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.reader import START, JournalReader

ROOT = Path(__file__).parents[4]
NAME, TENANT = "machines-that-die", "tenant-of-the-scheduler"
TTL_MS = 6_000  # a machine may stand still for seconds, which is no silence
WAIT_S = 180


@asynccontextmanager
async def scheduler(servers: Stack) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.scheduler",
        cwd=ROOT,
        env={**os.environ, **servers.env, "TUNERY_SCHEDULER_NODE_TTL_MS": str(TTL_MS)},
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()


@dataclass
class Peers:
    """The scheduler's peers: an agent that only sends heartbeats, and a reader of both journals."""

    stack: Stack
    runtime: Runtime
    incarnation: str = "a-1"
    beating: bool = True
    events: list[Any] = field(default_factory=list)

    async def send_heartbeats(self) -> None:
        while True:
            if self.beating:
                body = Heartbeat(pool=NAME, node_id="a", incarnation=self.incarnation, leases=())
                with suppress(BusError):  # the next heartbeat repeats it
                    keys = self.stack.settings.keys.sender_keys("node.a")
                    value = keys.sign(NODES, msgspec.json.encode(body))
                    await self.runtime.log.send(HEARTBEATS.name, b"a", value)
            await asyncio.sleep(0.5)

    async def read(self, stream: Stream, key: str) -> None:
        partition, position = partition_of(key.encode()), START
        while True:
            reader = JournalReader(self.runtime.log, stream, {partition: position})
            try:
                await reader.open()
                while True:
                    for batch in (await reader.read(200)).values():
                        for accepted in batch.accepted:
                            if accepted.header.key == key:
                                self.events += accepted.events
                    position = reader.positions[partition]
            except BusError:
                await asyncio.sleep(0.2)
            finally:
                with suppress(asyncio.CancelledError):  # of the client's own tasks
                    await reader.close()

    async def send_until_logged(self, stream: Stream, key: str, *bodies: Any) -> None:
        """Send each message until it is in the log, as agents do; it may be there twice."""
        for body in bodies:
            tenant = key if stream is JOB else ""
            while True:
                try:
                    sender = peer_of(self.stack, self.runtime.log, stream, body, "a")
                    await sender.send(stream, key, tenant, body)
                    break
                except BusError:
                    await asyncio.sleep(0.2)

    async def next_event(self, wanted: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(WAIT_S):
            while True:
                for event in self.events:
                    if wanted(event):
                        return event
                await asyncio.sleep(0.05)

    def lost_nodes(self) -> list[NodeLost]:
        return [event for event in self.events if isinstance(event, NodeLost)]


@pytest_asyncio.fixture
async def peers(servers: Stack) -> AsyncIterator[Peers]:
    settings = RuntimeSettings.model_validate(
        {name.removeprefix("TUNERY_").lower(): value for name, value in servers.env.items()}
    )
    async with open_runtime("schedulertest", settings) as runtime:
        peers = Peers(servers, runtime)
        tasks = [
            asyncio.create_task(routine)
            for routine in (
                peers.send_heartbeats(),
                peers.read(JOB, TENANT),
                peers.read(POOL, NAME),
            )
        ]
        try:
            yield peers
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.soak  # test_serving_pools and test_gang_live lose machines of a whole stack
async def test_the_job_of_a_dead_machine_is_placed_again(servers: Stack, peers: Peers) -> None:
    async with scheduler(servers) as first:
        await peers.send_until_logged(POOL, NAME, node())
        await peers.send_until_logged(
            JOB, TENANT, limits(), submit(JOB_ID, pool=NAME), prepared(), pinned()
        )
        await peers.next_event(lambda e: isinstance(e, JobSubmitted))
        assert (await peers.next_event(lambda e: isinstance(e, LeaseGranted))).members[
            0
        ].node_id == "a"

        # An outage longer than the TTL: no heartbeat can be sent, and none can be read.
        await servers.stop("kafka")
        await asyncio.sleep(1.5 * TTL_MS / 1_000)
        await servers.start("kafka")
        await asyncio.sleep(1.5 * TTL_MS / 1_000)
        assert peers.lost_nodes() == []

        peers.beating = False
        stopped_s = time.monotonic()
        await peers.next_event(lambda e: isinstance(e, NodeLost))
        assert time.monotonic() - stopped_s > TTL_MS / 2_000
        ended = await peers.next_event(lambda e: isinstance(e, AttemptEnded))
        assert (ended.end.outcome, ended.job_billable_gpu_ms) == ("lost", 0)
        await peers.next_event(
            lambda e: isinstance(e, PlacementWanted) and e.placement.attempt == 2
        )
        first.send_signal(signal.SIGKILL)
        await first.wait()

    async with scheduler(servers) as second:
        peers.incarnation, peers.beating = "a-2", True
        await peers.send_until_logged(POOL, NAME, node(incarnation="a-2"))
        granted = await peers.next_event(
            lambda e: isinstance(e, LeaseGranted) and e.lease.attempt == 2
        )
        assert (granted.members[0].incarnation, granted.lease.token.lease) == ("a-2", 2)
        second.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(second.wait(), WAIT_S) == 0
