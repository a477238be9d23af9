"""Restores into installations in memory: all, a moment, damaged ones, after a kill."""

import gzip
from typing import Any

import msgspec
import pytest

from schemas.envelope import Claim
from schemas.streams import PARTITIONS
from schemas.topics import AUDIT, STREAMS
from tests.histories.recorder import TENANT
from tests.unit.tunery.cli.backup.homes import Home, Killed, rewrite, strangers, submit_many
from tests.unit.tunery.cli.journal.journals import OWNERS, filled
from tests.unit.tunery.cli.journal.living import events, running, states
from tunery.cli.backup.restoring import check
from tunery.local.errors import LocalError
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.journal.codec import decode_record
from tunery.runtime.tools.inspection import PartitionScan


async def test_restored_installation_goes_on_and_repeats_no_reaction_or_webhook(
    home: Home, busy: MemoryLog
) -> None:
    busy.topics[AUDIT.name][0].records.clear()
    busy.put(AUDIT.name, 0, b"k", b"{}")
    manifest = await home.take(busy)
    assert manifest.positions
    restored = await home.restore()
    assert (restored.reactions_again, restored.continued, restored.keys) == (False, 0, 1)
    assert restored.missing_objects == []
    known = {name: events(home.log, name) for name in STREAMS}
    async with running(home.log):
        pass
    assert await states(home.log) == await states(busy)
    assert {name: events(home.log, name) for name in STREAMS} == known
    assert [record.value for record in home.log.topics[AUDIT.name][0].records] == [b"{}"]
    copied = DirectoryKeyStore(home.folder / "restored", Roots(home.roots)).get(TENANT)
    assert copied == home.store.get(TENANT)


async def test_without_positions_reactions_are_sent_again_and_dropped(
    home: Home, busy: MemoryLog
) -> None:
    """With an undecided command it is not certain which events were reacted to."""
    await submit_many(busy, range(77, 78))
    manifest = await home.take(busy)
    assert not manifest.positions
    assert (await home.restore()).reactions_again
    before = {name: events(home.log, name) for name in STREAMS}
    async with running(home.log):
        pass
    new = [e for name in STREAMS for e in events(home.log, name) if e not in before[name]]
    assert {event["type"] for event in new} == {"Repeated.v1"}


async def test_restore_until_a_moment_has_nothing_after_it(home: Home, busy: MemoryLog) -> None:
    times = sorted(
        record.timestamp
        for stream in STREAMS.values()
        for partition in busy.topics[stream.journal.name]
        for record in partition.records
    )
    await home.take(busy)
    until = times[2 * len(times) // 3]
    restored = await home.restore(until)
    assert 0 < restored.records < len(times)
    for name, end in restored.partitions.items():
        stream, number = name.split("/")
        records = busy.topics[STREAMS[stream].journal.name][int(number)].records
        assert all(record.timestamp <= until for record in records[:end])
        assert all(record.timestamp > until for record in records[end : end + 1])
    async with running(home.log):
        pass
    assert strangers(home.log) == set()
    with pytest.raises(LocalError, match="before --until"):
        check(home.backup, times[-1] + 1)


async def test_review2_p10a_journals_that_do_not_fit_together_are_refused_by_name(
    home: Home, busy: MemoryLog
) -> None:
    """The journal of jobs is of an earlier moment, and its chain is sound; hashes of files, too."""
    manifest = await home.take(busy)
    jobs = [name for name in manifest.ends if name.startswith("job/")]
    name = max(jobs, key=lambda each: manifest.ends[each].offset)
    early = scan_up_to(busy, name, 2)
    rewrite(home, msgspec.structs.replace(manifest, ends={**manifest.ends, name: early}))
    with pytest.raises(LocalError, match=rf"do not fit together:\n .* follows from {name} at"):
        check(home.backup, None)


def scan_up_to(log: MemoryLog, name: str, end: int) -> Any:
    stream, number = name.split("/")
    walk = PartitionScan(STREAMS[stream], int(number))
    walk.take(log.topics[STREAMS[stream].journal.name][int(number)].records[:end])
    return walk.position


async def test_changed_record_is_refused_although_its_file_has_the_right_hash(
    home: Home, busy: MemoryLog
) -> None:
    manifest = await home.take(busy)
    segment = next(each for each in manifest.segments if each.stream == "account")
    path = home.backup.path / segment.file
    lines = gzip.decompress(path.read_bytes()).replace(b'"lane":"standard"', b'"lane":"premium"')
    stem = "segments/account-000001"
    path.unlink()
    with home.backup.part(stem) as file:
        file.write(lines)
    changed = msgspec.structs.replace(segment, file=home.backup.complete(stem))
    others = tuple(each for each in manifest.segments if each.stream != "account")
    rewrite(home, msgspec.structs.replace(manifest, segments=(*others, changed)))
    with pytest.raises(LocalError, match=r"account/\d( at offset \d+| has the head hash)"):
        check(home.backup, None)


async def test_installation_that_is_not_empty_is_refused(home: Home, busy: MemoryLog) -> None:
    await home.take(busy)
    home.log = filled(OWNERS.name)
    with pytest.raises(LocalError, match=r"account/\d of this installation holds the records"):
        await home.restore()
    home.log, home.rows = MemoryLog(), "billing"
    with pytest.raises(LocalError, match="rows in the schema billing"):
        await home.restore()
    home.rows, home.log = None, filled()
    async with running(home.log):
        with pytest.raises(LocalError, match=r"the owner of \w+ is running"):
            await home.restore()


@pytest.mark.parametrize("after", [0, 1, 7, 20, 60])
async def test_interrupted_restore_goes_on(
    after: int, home: Home, busy: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.take(busy)
    left, put = after, home.log.put

    def killed(*arguments: Any) -> Any:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        return put(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(home.log, "put", killed)
        with pytest.raises(Killed):
            await home.restore()
    restored = await home.restore()
    assert restored.continued <= after
    claims = await home.restore()  # once more: it is there already
    assert claims.continued == restored.records
    async with running(home.log):
        pass
    assert await states(home.log) == await states(busy)
    records = [r for p in home.log.topics[STREAMS["job"].journal.name] for r in p.records]
    operators = [c for c in (decode_record(r.value) for r in records) if isinstance(c, Claim)]
    assert sum(claim.base is not None for claim in operators) == PARTITIONS
