"""A whole installation in memory: all deciders and reactions, and what a tenant does there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from schemas.account import CreateEndpoint, CreateTenant, PlanTerms
from schemas.dataset import RecordPrepared
from schemas.endpoints import EndpointTerms
from schemas.envelope import Message
from schemas.job import CancelJob
from schemas.model import AddBase
from schemas.streams import GLOBAL, PARTITIONS
from schemas.topics import STREAMS
from services.billing.react import react_account
from services.ingest.react import react_dataset
from services.registry.react import react_model
from services.scheduler.react import react_job, react_pool
from tests.histories.recorder import TENANT, Recorder
from tests.histories.replaying import AGGREGATES
from tests.histories.stories import dataset, job, model
from tests.histories.stories.account import LIMITS
from tunery.cli.journal import scan
from tunery.platform.memory_servers import MemoryServers
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.reactor import Reactor, positions_of
from tunery.runtime.journal.codec import state_hash
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.tools.verify import replay_stream

MOVED_S_MAX = 60
QUICK: Final = HostLimits(idle_wait_ms=20, commit_every_ms=20)
REACTIONS: Final = {
    "account": ("billing", react_account),
    "dataset": ("ingest", react_dataset),
    "job": ("scheduler", react_job),
    "model": ("registry", react_model),
    "pool": ("scheduler", react_pool),
}


@asynccontextmanager
async def running(log: MemoryLog) -> AsyncIterator[None]:
    """Every decider and every reaction; at the end, until nothing is left to say."""
    world = MemoryServers(log, MemoryBlobs(), MemoryKeyStore(), log.clock)
    hosts: list[AggregateHost[Any] | Reactor] = []
    for name, (service, react) in REACTIONS.items():
        runtime = world.runtime(service)
        hosts.append(AggregateHost(runtime, AGGREGATES[name], limits=QUICK))
        hosts.append(Reactor(runtime, STREAMS[name], react, streams=STREAMS, limits=QUICK))
    tasks = [asyncio.create_task(host.run()) for host in hosts]
    try:
        async with asyncio.timeout(MOVED_S_MAX):
            await asyncio.gather(*(host.ready() for host in hosts))
            yield
            while not await is_settled(log):  # noqa: ASYNC110  # it asks the log
                await asyncio.sleep(0.02)
        assert not any(host.stopped for host in hosts)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def is_settled(log: MemoryLog) -> bool:
    """Every command is decided, every record was reacted to."""
    for name, (service, _) in REACTIONS.items():
        stream = STREAMS[name]
        saved = await log.committed(positions_of(service, stream), stream.journal.name)
        for tally in await scan.verify(log, name, range(PARTITIONS)):
            _, commands = await log.bounds(stream.commands.name, tally.partition)
            _, end = await log.bounds(stream.journal.name, tally.partition)
            reacted = tally.partition in saved and saved[tally.partition].offset == end
            if not reacted or tally.cause + 1 - tally.base != commands:
                return False
    return True


async def lived(log: MemoryLog) -> None:
    """A tenant with a webhook; one of its jobs waits for a node, another was cancelled."""
    story, sender = Recorder("moving", AGGREGATES["account"], TENANT), Sender(log, STREAMS)

    async def send(stream: str, *bodies: Message) -> None:
        for body in bodies:
            await sender.send(stream, TENANT, TENANT, body)

    for partition in range(PARTITIONS):
        await sender.send("model", GLOBAL, GLOBAL, AddBase(base=model.BASE), partition=partition)
    tenant = CreateTenant(
        name=story.seal("ACME"),
        terms=PlanTerms(lane="standard", limits=LIMITS, price_version="2026-11"),
    )
    hook = CreateEndpoint(
        terms=EndpointTerms(
            endpoint_id="we_1",
            name=story.seal("hooks"),
            url=story.seal("https://acme.example"),
            event_types=("fine_tuning.job.cancelled",),
        )
    )
    await send("account", tenant, hook)
    await send("dataset", dataset.file(story, 1), dataset.validated(1))
    await await_event(log, "job", "LimitsSet.v1")
    await send("job", job.submit(story, 1), job.submit(story, 2), CancelJob(job_id="ftjob-2"))
    due = await await_event(log, "dataset", "PreparationDue.v1")
    prepared = RecordPrepared(prepare_id=due["prepare_id"], prepared=dataset.PREPARED)
    await send("dataset", prepared)
    await await_event(log, "pool", "PlacementQueued.v1")
    await await_event(log, "account", "DeliveryDue.v1")


def events(log: MemoryLog, stream: str) -> list[Any]:
    """All of them, as they stand in the journal, with the partition and offset of each."""
    return [
        {"place": (record.partition, record.offset)} | event
        for partition in log.topics[STREAMS[stream].journal.name]
        for record in partition.records
        for event in msgspec.json.decode(record.value).get("events", ())
    ]


async def await_event(log: MemoryLog, stream: str, name: str) -> Any:
    """Wait for an event."""
    while True:
        for event in events(log, stream):
            if event["type"] == name:
                return event
        await asyncio.sleep(0.01)


async def states(log: MemoryLog) -> dict[str, list[str]]:
    return {
        name: [state_hash(replay.fold.state) for replay in await replay_stream(log, aggregate)]
        for name, aggregate in AGGREGATES.items()
    }
