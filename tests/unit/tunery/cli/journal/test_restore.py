"""An owner goes on from a journal that was brought back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from schemas.account import RevokeKey, SetPlan
from schemas.envelope import Entry
from schemas.topics import ACCOUNT
from tests.histories.recorder import TENANT
from tests.histories.stories.account import LIMITS
from tests.unit.tunery.cli.journal.journals import OWNERS, filled, records
from tunery.cli.journal.restore import restore
from tunery.local.errors import LocalError
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.reactor import positions_of
from tunery.runtime.journal.codec import decode_record
from tunery.runtime.journal.reader import START, load_position
from tunery.runtime.memory_servers import MemoryServers
from tunery.runtime.seal.memory import MemoryKeyStore
from tunery.runtime.tools.archive import write
from tunery.runtime.tools.verify import replay

HERE = OWNERS.partition
WAIT_S = 10


@asynccontextmanager
async def owned(log: MemoryLog) -> AsyncIterator[AggregateHost[object]]:
    """The production owner of `account` over this log."""
    world = MemoryServers(log, MemoryBlobs(), MemoryKeyStore(), SystemClock())
    host: AggregateHost[object] = AggregateHost(world.runtime("billing"), OWNERS.aggregate)
    task = asyncio.create_task(host.run())
    try:
        async with asyncio.timeout(WAIT_S):
            await host.ready()
        yield host
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


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
    await restore(log, export(filled(OWNERS.name), tmp_path / "a"), replace=False)
    async with owned(log) as host:
        plan = SetPlan(plan="free", limits=LIMITS, price_version="2026-12")
        await Sender(log).send(ACCOUNT, TENANT, TENANT, plan)
        *_, last = await decided(log, 12)
    assert not host.stopped
    assert (last.cause, last.seq) == (11, 11)


async def test_the_same_commands_topic_goes_on_and_nothing_is_decided_twice(tmp_path: Path) -> None:
    log = filled()
    await restore(log, export(filled(OWNERS.name), tmp_path / "a"), replace=False)
    ids = []
    async with owned(log):
        for number in range(3):
            body = RevokeKey(key_id=f"key_{number}")
            ids.append(await Sender(log).send(ACCOUNT, TENANT, TENANT, body))
        entries = await decided(log, 14)
    assert [record.command_id for record in entries[-3:]] == ids
    # what was written last is lost: the operator restores what was there before
    early = next(
        offset + 1
        for offset, record in enumerate(records(log, "account", HERE))
        if ids[1].encode() in record.value
    )
    restored = (await restore(log, export(log, tmp_path / "b", early), replace=True))[HERE]
    assert (restored.base, restored.next_command) == (11, 13)
    async with owned(log):
        entries = await decided(log, 14)
    assert [record.command_id for record in entries[-3:]] == ids


async def test_reactions_begin_again_after_a_replacement(tmp_path: Path) -> None:
    log = filled(OWNERS.name)
    await restore(log, export(log, tmp_path / "a"), replace=True)
    saved = await log.committed(positions_of("billing", ACCOUNT), ACCOUNT.journal.name)
    assert {load_position(record.metadata) for record in saved.values()} == {START}


async def test_nothing_is_restored_under_a_running_owner(tmp_path: Path) -> None:
    log = filled()
    file = export(filled(OWNERS.name), tmp_path / "a")
    async with owned(log):
        with pytest.raises(LocalError, match=r"the owner of account is running[\s\S]*tunery down"):
            await restore(log, file, replace=True)
    assert all(decode_record(record.value) is not None for record in records(log, "account", HERE))
    with pytest.raises(LocalError, match="holds the records"):  # its claim
        await restore(log, file, replace=False)


async def test_a_writer_in_between_is_noticed(
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
        await restore(log, export(filled(OWNERS.name), tmp_path / "a"), replace=False)
