"""The hosts of the composition root on a log in memory: a job reaches a node and ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from schemas.envelope import Entry
from schemas.job import JobEnded, PlacementWanted
from schemas.pool import ConfirmFreed, LeaseGranted, MemberFreed, ReportExit, ReportStarted
from schemas.streams import PARTITIONS, Stream
from schemas.topics import JOB, POOL, STREAMS, TOPICS
from schemas.training import AttemptStart
from services.scheduler.app import JOBS, POOLS
from services.scheduler.react import react_job, react_pool
from simulator.control_plane.samples import POOL as NAME
from simulator.control_plane.samples import SCORED, TRAINED, limits, node, submit
from tests.unit.services.scheduler.lives import (
    JOB_ID,
    REGISTERED,
    TENANT,
    VERDICT,
    pinned,
    prepared,
)
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.clock import Clock, SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.codec import codec_of, decode_record
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.levels import LogLevels

LIMITS = HostLimits(idle_wait_ms=10, retry_ms=10)
WAIT_S = 180


@dataclass
class SchedulerFixture:
    log: MemoryLog = field(default_factory=lambda: MemoryLog(session_timeout_ms=50))
    clock: Clock = field(default_factory=SystemClock)
    blobs: Blobs = field(default_factory=MemoryBlobs)
    name: str = "scheduler"
    keys: SenderKeys = UNSIGNED
    levels: LogLevels = field(default_factory=LogLevels)

    async def say(self, stream: Stream, key: str, *bodies: Any) -> None:
        for body in bodies:
            await Sender(self.log, STREAMS).send(stream, key, key if stream is JOB else "", body)

    def events(self, stream: Stream, key: str) -> list[Any]:
        records = self.log.topics[stream.journal.name][partition_of(key.encode())].records
        entries = [decode_record(record.value) for record in records]
        codec = codec_of(stream)
        return [e for entry in entries if isinstance(entry, Entry) for e in codec.events(entry)]

    async def seen(self, stream: Stream, key: str, wanted: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(WAIT_S):
            while True:
                for event in self.events(stream, key):
                    if wanted(event):
                        return event
                await asyncio.sleep(0.005)


@asynccontextmanager
async def scheduler() -> AsyncIterator[SchedulerFixture]:
    fixture = SchedulerFixture()
    await fixture.log.create(TOPICS, PARTITIONS)
    hosts = (
        AggregateHost(fixture, JOBS, limits=LIMITS),
        AggregateHost(fixture, POOLS, limits=LIMITS),
        Reactor(fixture, JOB, react_job, streams=STREAMS, limits=LIMITS),
        Reactor(fixture, POOL, react_pool, streams=STREAMS, limits=LIMITS),
    )
    tasks = [asyncio.create_task(host.run()) for host in hosts]
    try:
        for host in hosts:
            await host.ready()
        yield fixture
        assert not any(host.stopped for host in hosts)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_lease(fixture: SchedulerFixture, number: int, result: Any) -> None:
    """What an agent does with the number-th lease."""
    granted: LeaseGranted = await fixture.seen(
        POOL, NAME, lambda e: isinstance(e, LeaseGranted) and e.lease.token.lease == number
    )
    (member,) = granted.members
    token, incarnation = granted.lease.token, member.incarnation
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=40)
    await fixture.say(
        POOL,
        NAME,
        ReportStarted(token=token, incarnation=incarnation, start=start),
        ReportExit(
            token=token,
            incarnation=incarnation,
            outcome="succeeded",
            elapsed_ms=1,
            result=result,
        ),
        ConfirmFreed(token=token, node_id=member.node_id, incarnation=incarnation),
    )


async def test_a_job_goes_from_submission_to_its_end() -> None:
    async with scheduler() as fixture:
        await fixture.say(POOL, NAME, node())
        await fixture.say(JOB, TENANT, limits(), submit(JOB_ID), prepared(), pinned())
        wanted = await fixture.seen(JOB, TENANT, lambda e: isinstance(e, PlacementWanted))
        assert wanted.placement.role == "train"
        await run_lease(fixture, 1, TRAINED)
        await run_lease(fixture, 2, SCORED)
        await fixture.seen(JOB, TENANT, lambda e: type(e).__name__ == "VerdictDue")
        await fixture.say(JOB, TENANT, VERDICT, REGISTERED)
        ended = await fixture.seen(JOB, TENANT, lambda e: isinstance(e, JobEnded))
        assert (ended.outcome, ended.model_id, ended.failure) == ("succeeded", "ft:smol", None)
        freed = [event for event in fixture.events(POOL, NAME) if isinstance(event, MemberFreed)]
        assert len(freed) == 2
