"""An owner goes on from a journal that was brought back; so does a whole installation."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from schemas.account import CreateEndpoint, CreateTenant, PlanTerms, RevokeKey, SetPlan
from schemas.dataset import RecordPrepared
from schemas.endpoints import EndpointTerms
from schemas.envelope import Entry, Message
from schemas.job import CancelJob
from schemas.model import AddBase
from schemas.streams import GLOBAL, PARTITIONS
from schemas.topics import ACCOUNT, STREAMS
from services.billing.react import react_account
from services.ingest.react import react_dataset
from services.registry.react import react_model
from services.scheduler.react import react_job, react_pool
from tests.histories.recorder import TENANT, Recorder
from tests.histories.replaying import AGGREGATES
from tests.histories.stories import dataset, job, model
from tests.histories.stories.account import LIMITS
from tests.hosts import running as running_hosts
from tests.unit.tunery.cli.journal.journals import OWNERS, filled, records
from tunery.cli.journal import scan
from tunery.cli.journal.restore import restore
from tunery.local.errors import LocalError
from tunery.platform.memory_servers import MemoryServers
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.reactor import Reactor, positions_of
from tunery.runtime.journal.codec import decode_record, state_hash
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.journal.reader import START, load_position
from tunery.runtime.tools.archive import write
from tunery.runtime.tools.inspection import missing_causes
from tunery.runtime.tools.verify import replay, replay_stream

HERE = OWNERS.partition
WAIT_S = 180


@asynccontextmanager
async def owned(log: MemoryLog) -> AsyncIterator[AggregateHost[object]]:
    """The production owner of `account` over this log."""
    world = MemoryServers(log, MemoryBlobs(), MemoryKeyStore(), SystemClock())
    host: AggregateHost[object] = AggregateHost(world.runtime("billing"), OWNERS.aggregate)
    async with running_hosts(host):
        yield host


async def decided(log: MemoryLog, count: int) -> list[Entry]:
    """Wait for the partition's accepted entries."""
    async with asyncio.timeout(WAIT_S):
        while True:
            held = records(log, "account", HERE)
            if replay(OWNERS.aggregate, HERE, held).accepted >= count:
                entries = [decode_record(record.value) for record in held]
                return [record for record in entries if isinstance(record, Entry)]
            await asyncio.sleep(0.01)


def export(log: MemoryLog, file: Path, count: int | None = None) -> Path:
    """All partitions; of ours, only the first `count` records."""
    held = records(log, "account", HERE)[:count]
    bounds = {number: (0, len(held) if number == HERE else 0) for number in range(8)}
    with file.open("wb") as target:
        write(target, "account", bounds, held)
    return file


async def test_an_owner_decides_on_where_the_export_ended(tmp_path: Path) -> None:
    log = filled()
    await restore(log, [export(filled(OWNERS.name), tmp_path / "a")], replace=False)
    async with owned(log) as host:
        plan = SetPlan(terms=PlanTerms(lane="free", limits=LIMITS, price_version="2026-12"))
        await Sender(log, STREAMS).send(ACCOUNT, TENANT, TENANT, plan)
        *_, last = await decided(log, 12)
    assert not host.stopped
    assert (last.cause, last.seq) == (11, 11)


async def test_the_same_commands_topic_goes_on_and_nothing_is_decided_twice(tmp_path: Path) -> None:
    log = filled()
    await restore(log, [export(filled(OWNERS.name), tmp_path / "a")], replace=False)
    ids = []
    async with owned(log):
        for number in range(3):
            body = RevokeKey(key_id=f"key_{number}")
            ids.append(await Sender(log, STREAMS).send(ACCOUNT, TENANT, TENANT, body))
        entries = await decided(log, 14)
    assert [record.command_id for record in entries[-3:]] == ids
    # what was written last is lost: the operator restores what was there before
    early = next(
        offset + 1
        for offset, record in enumerate(records(log, "account", HERE))
        if ids[1].encode() in record.value
    )
    restored = (await restore(log, [export(log, tmp_path / "b", early)], replace=True))[HERE]
    assert (restored.base, restored.next_command) == (11, 13)
    async with owned(log):
        entries = await decided(log, 14)
    assert [record.command_id for record in entries[-3:]] == ids


async def test_reactions_begin_again_after_a_replacement(tmp_path: Path) -> None:
    log = filled(OWNERS.name)
    await restore(log, [export(log, tmp_path / "a")], replace=True)
    saved = await log.committed(positions_of("billing", ACCOUNT), ACCOUNT.journal.name)
    assert {load_position(record.metadata) for record in saved.values()} == {START}


async def test_restore_is_refused_while_the_owner_runs(tmp_path: Path) -> None:
    log = filled()
    file = export(filled(OWNERS.name), tmp_path / "a")
    async with owned(log):
        with pytest.raises(LocalError, match=r"the owner of account is running[\s\S]*tunery down"):
            await restore(log, [file], replace=True)
    assert all(decode_record(record.value) is not None for record in records(log, "account", HERE))
    with pytest.raises(LocalError, match="holds the records"):  # its claim
        await restore(log, [file], replace=False)


async def test_a_concurrent_writer_stops_the_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled()
    put = log.put

    def meddled(topic: str, partition: int, key: bytes, value: bytes) -> object:
        if b'"cause":3' in value:
            put(topic, partition, b"", OWNERS.records[0].value)
        return put(topic, partition, key, value)

    monkeypatch.setattr(log, "put", meddled)
    with pytest.raises(LocalError, match=rf"another process writes to account/{HERE}"):
        await restore(log, [export(filled(OWNERS.name), tmp_path / "a")], replace=False)


# --- all streams moved: every reaction is sent again, and none counts -----------------------------


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
    world = MemoryServers(log, MemoryBlobs(), MemoryKeyStore(), SystemClock())
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


async def exported(log: MemoryLog, folder: Path, names: Iterable[str]) -> None:
    for name in names:
        with (folder / name).open("wb") as file:
            await scan.export(log, name, range(PARTITIONS), file)


@pytest.mark.parametrize("early", ["job", "model"])
async def test_review2_p10a_exports_of_different_moments_are_refused_and_named(
    early: str, tmp_path: Path
) -> None:
    """A pool whose placements belong to no job would have them trained and billed."""
    here = filled()
    await exported(here, tmp_path, [early])
    async with running(here):
        await lived(here)
    await exported(here, tmp_path, [name for name in STREAMS if name != early])
    there = MemoryLog()
    with pytest.raises(LocalError, match=rf"different moments: .* follows from {early}/\d at"):
        await restore(there, [tmp_path / name for name in STREAMS], replace=False)
    assert not there.topics or not any(events(there, name) for name in STREAMS)
    # one by one they cannot be compared before they are there: verification names it afterwards
    for name in STREAMS:
        await restore(there, [tmp_path / name], replace=False)
    tallies = [t for name in STREAMS for t in await scan.verify(there, name, range(PARTITIONS))]
    assert any(f"follows from {early}/" in text for text in missing_causes(tallies))


async def test_a_moved_installation_repeats_no_reaction_or_webhook(tmp_path: Path) -> None:
    here = filled()
    async with running(here):
        await lived(here)
    there = MemoryLog()
    await exported(here, tmp_path, STREAMS)
    await restore(there, [tmp_path / name for name in STREAMS], replace=False)
    known = {name: events(there, name) for name in STREAMS}
    async with running(there):
        pass
    assert await states(there) == await states(here)
    new = [event for name in STREAMS for event in events(there, name) if event not in known[name]]
    assert len(new) >= len(STREAMS)
    assert {event["type"] for event in new} == {"Repeated.v1"}
