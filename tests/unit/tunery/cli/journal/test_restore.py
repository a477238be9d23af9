"""An owner goes on from a journal that was brought back; so does a whole installation."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schemas.account import PlanTerms, RevokeKey, SetPlan
from schemas.envelope import Entry
from schemas.streams import PARTITIONS
from schemas.topics import ACCOUNT, STREAMS
from tests.histories.recorder import TENANT
from tests.histories.stories.account import LIMITS
from tests.hosts import running as running_hosts
from tests.unit.tunery.cli.journal.journals import OWNERS, filled, records
from tests.unit.tunery.cli.journal.living import events, lived, running, states
from tunery.cli.journal import scan
from tunery.cli.journal.restore import restore
from tunery.local.errors import LocalError
from tunery.platform.memory_servers import MemoryServers
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.reactor import positions_of
from tunery.runtime.journal.codec import decode_record
from tunery.runtime.journal.reader import START, load_position
from tunery.runtime.tools.archive import write
from tunery.runtime.tools.inspection import missing_causes
from tunery.runtime.tools.verify import replay

HERE = OWNERS.partition
WAIT_S = 180


@asynccontextmanager
async def owned(log: MemoryLog) -> AsyncIterator[AggregateHost[object]]:
    """The production owner of `account` over this log."""
    world = MemoryServers(log, MemoryBlobs(), MemoryKeyStore(), log.clock)
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
    there = MemoryLog(here.clock)
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
    there = MemoryLog(here.clock)
    await exported(here, tmp_path, STREAMS)
    await restore(there, [tmp_path / name for name in STREAMS], replace=False)
    known = {name: events(there, name) for name in STREAMS}
    async with running(there):
        pass
    assert await states(there) == await states(here)
    new = [event for name in STREAMS for event in events(there, name) if event not in known[name]]
    assert len(new) >= len(STREAMS)
    assert {event["type"] for event in new} == {"Repeated.v1"}
