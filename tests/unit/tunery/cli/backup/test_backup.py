"""Backups of an installation in memory: taken under load, damaged, interrupted, restored."""

import asyncio
import gzip
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from schemas.envelope import Claim
from schemas.streams import PARTITIONS
from schemas.topics import AUDIT, STREAMS
from tests.histories.recorder import TENANT, Recorder
from tests.histories.replaying import AGGREGATES
from tests.histories.stories import job
from tests.unit.tunery.cli.journal.journals import OWNERS, filled
from tests.unit.tunery.cli.journal.living import events, lived, running, states
from tunery.cli.backup.folder import BackupFolder, Manifest
from tunery.cli.backup.restoring import Allowed, Restored, check, restore
from tunery.cli.backup.taking import take
from tunery.cli.journal import scan
from tunery.local.errors import LocalError
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots, create_root
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.journal.codec import decode_record
from tunery.runtime.tools.inspection import PartitionScan, missing_causes

OBJECT: Final = f"t/acme/files/ab/{'ab' * 32}.jsonl"
JOBS: Final = 40


@dataclass
class Home:
    """Folders of an installation and of its backup, and the objects of its storage."""

    folder: Path
    objects: dict[str, int] = field(default_factory=lambda: {OBJECT: 7, "snapshots/job/1": 3})
    rows: str | None = None
    raised: dict[str, int] = field(default_factory=dict)
    log: MemoryLog = field(default_factory=MemoryLog)

    def __post_init__(self) -> None:
        create_root(self.roots)
        self.store.get(TENANT)

    @property
    def backup(self) -> BackupFolder:
        return BackupFolder(self.folder / "backup")

    @property
    def keystore(self) -> Path:
        return self.folder / "keystore"

    @property
    def roots(self) -> Path:
        return self.folder / "roots"

    @property
    def store(self) -> DirectoryKeyStore:
        return DirectoryKeyStore(self.keystore, Roots(self.roots))

    async def list_objects(self) -> AsyncIterator[tuple[str, int]]:
        for name, size in self.objects.items():
            yield name, size

    async def rows_in(self) -> str | None:
        return self.rows

    async def raise_levels(self, levels: Mapping[str, int]) -> None:
        self.raised.update(levels)

    async def take(self, log: MemoryLog, settle_s: float = 0.0) -> Manifest:
        with self.backup.locked():
            return await take(
                log,
                self.backup,
                self.keystore,
                self.list_objects,
                lambda _: asyncio.sleep(settle_s),
            )

    async def restore(self, until_ms: int | None = None, **allowed: bool) -> Restored:
        """Into the log of this home, and a key store beside the one that was backed up."""
        return await restore(
            check(self.backup, until_ms),
            self,
            self.folder / "restored",
            self.roots,
            Allowed(**allowed),
            lambda _: None,
        )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
async def busy() -> MemoryLog:
    """An installation that is at rest after some work."""
    log = filled()
    async with running(log):
        await lived(log)
    return log


def ids(log: MemoryLog, stream: str, kind: str, path: str) -> set[str]:
    """A field of all events of a kind."""
    found = set()
    for event in events(log, stream):
        if event["type"] == kind:
            value: Any = event
            for name in path.split("."):
                value = value[name]
            found.add(value)
    return found


def jobs_nobody_submitted(log: MemoryLog) -> set[str]:
    """Jobs that the pool would train, and that the stream of jobs does not have."""
    placed = ids(log, "pool", "PlacementQueued.v1", "placement.job_id")
    return placed - ids(log, "job", "JobSubmitted.v1", "job_id")


async def submit_many(log: MemoryLog, numbers: range) -> None:
    story, sender = Recorder("load", AGGREGATES["account"], TENANT), Sender(log, STREAMS)
    for number in numbers:
        await sender.send("job", TENANT, TENANT, job.submit(story, number))
        await asyncio.sleep(0.002)


# --- a cut under load -----------------------------------------------------------------------------


async def test_review2_p10a_backups_under_load_fit_together_and_lose_nothing(home: Home) -> None:
    """Every cut is consistent, and has what was acknowledged before its backup began."""
    log = filled()
    async with running(log):
        await lived(log)
        load = asyncio.create_task(submit_many(log, range(10, 10 + JOBS)))
        acknowledged: list[set[str]] = []
        while not load.done():
            acknowledged.append(ids(log, "job", "JobSubmitted.v1", "job_id"))
            await home.take(log, settle_s=0.01)
        await load
    assert len(acknowledged) > 2
    backups = home.backup.open()
    assert backups is not None
    assert [manifest.number for manifest in backups.manifests] == list(
        range(1, len(acknowledged) + 1)
    )
    for manifest, known in zip(backups.manifests, acknowledged, strict=True):
        there = MemoryLog()
        cut = {name: position.offset for name, position in manifest.ends.items()}
        copy_up_to(log, there, cut)
        assert not list(missing_causes([t for n in STREAMS for t in await tallies(there, n)]))
        assert ids(there, "job", "JobSubmitted.v1", "job_id") >= known
        assert jobs_nobody_submitted(there) == set()
    await home.restore()
    async with running(home.log):
        pass
    assert await states(home.log) == await states(log)


async def tallies(log: MemoryLog, name: str) -> list[Any]:
    return await scan.verify(log, name, range(PARTITIONS))


def copy_up_to(source: MemoryLog, target: MemoryLog, cut: Mapping[str, int]) -> None:
    for name, end in cut.items():
        stream, number = name.split("/")
        topic = STREAMS[stream].journal.name
        partitions = target.topics.setdefault(
            topic, [type(source.topics[topic][0])() for _ in range(PARTITIONS)]
        )
        partitions[int(number)].records.extend(source.topics[topic][int(number)].records[:end])


# --- restore --------------------------------------------------------------------------------------


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
    """A command that nobody has decided yet: what was reacted to cannot be known for sure."""
    await submit_many(busy, range(77, 78))
    manifest = await home.take(busy)
    assert not manifest.positions
    assert (await home.restore()).reactions_again
    before = {name: events(home.log, name) for name in STREAMS}
    async with running(home.log):
        pass
    new = [e for name in STREAMS for e in events(home.log, name) if e not in before[name]]
    assert {event["type"] for event in new} == {"Repeated.v1"}


async def test_backups_write_only_what_is_new_and_go_on_after_a_restore(
    home: Home, busy: MemoryLog
) -> None:
    first = await home.take(busy)
    assert {segment.stream for segment in first.segments} >= set(STREAMS)
    again = await home.take(busy)
    assert (again.number, again.segments, again.ends) == (2, (), first.ends)
    await home.restore()
    async with running(home.log):
        await submit_many(home.log, range(100, 103))
    third = await home.take(home.log)
    assert "job" in {segment.stream for segment in third.segments}
    there = Home(home.folder)
    await there.restore()
    assert await states(there.log) == await states(home.log)


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
    assert jobs_nobody_submitted(home.log) == set()
    with pytest.raises(LocalError, match="before --until"):
        check(home.backup, times[-1] + 1)


# --- what is refused ------------------------------------------------------------------------------


async def test_one_flipped_bit_is_refused_with_the_name_of_its_file(
    home: Home, busy: MemoryLog
) -> None:
    await home.take(busy)
    files = [p for p in home.backup.path.rglob("*") if p.suffix in {".gz", ".json"}]
    assert len(files) >= len(STREAMS) + 2  # segments, a list of objects, a manifest
    for file in files:
        sound = file.read_bytes()
        damaged = bytearray(sound)
        damaged[len(damaged) // 2] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(LocalError, match=rf"{file.name} was changed"):
            check(home.backup, None)
        file.write_bytes(sound)
    check(home.backup, None)


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


def rewrite(home: Home, manifest: Manifest) -> None:
    shutil.rmtree(home.backup.path / "manifests")
    (home.backup.path / "manifests").mkdir()
    home.backup.add(manifest)


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


async def test_older_release_refuses_a_backup_of_a_later_level(home: Home, busy: MemoryLog) -> None:
    manifest = await home.take(busy)
    rewrite(home, msgspec.structs.replace(manifest, level=manifest.level + 1, release="9.1"))
    with pytest.raises(LocalError, match=r"level 2.*\n.*install release 9\.1 or a newer one"):
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


async def test_lacking_objects_and_keys_are_named_before_anything_is_written(
    home: Home, busy: MemoryLog
) -> None:
    await home.take(busy)
    home.objects[OBJECT] = 6
    with pytest.raises(LocalError, match=rf"lacks 1 objects of the backup:\n  {OBJECT}"):
        await home.restore()
    (home.roots / "default.json").unlink()
    create_root(home.roots)  # as `tunery up` does in an empty folder
    with pytest.raises(LocalError, match=r"1 keys .* do not open .*\n.*root keys of the old"):
        await home.restore(objects=True)
    assert not home.log.topics
    restored = await home.restore(objects=True, keys=True)
    assert (restored.missing_objects, list(restored.unopened_keys)) == ([OBJECT], [TENANT])


async def test_keys_of_erased_tenants_leave_the_backup(home: Home, busy: MemoryLog) -> None:
    home.store.get("gone")
    assert (await home.take(busy)).keys == {TENANT: "default", "gone": "default"}
    home.store.destroy("gone")
    assert (await home.take(busy)).keys == {TENANT: "default", "gone": None}
    assert (home.backup.keys / "gone.key").read_bytes() == b""
    shutil.rmtree(home.keystore)
    with pytest.raises(LocalError, match="lacks 1 keys that the backup has, acme"):
        await home.take(busy)
    DirectoryKeyStore(home.keystore).get(TENANT)
    with pytest.raises(LocalError, match="is in the clear"):
        await home.take(busy)


async def test_folder_of_another_installation_is_refused(home: Home, busy: MemoryLog) -> None:
    await home.take(busy)
    with pytest.raises(LocalError, match="choose an empty folder"):
        await home.take(filled(OWNERS.name))
    with pytest.raises(LocalError, match="has no backup"):
        check(BackupFolder(home.folder / "other"), None)


# --- interrupted ----------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing of the command runs after it, as after a kill."""


@pytest.mark.parametrize("point", ["part", "complete", "add"])
async def test_interrupted_backup_is_made_by_the_next_one(
    point: str, home: Home, busy: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.take(filled_from(busy, 5))

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(BackupFolder, point, killed)
        with pytest.raises(Killed):
            await home.take(busy)
    assert (await home.take(busy)).number == 2
    left = {path.name for path in home.backup.path.rglob("*.part")}
    assert not left
    await home.restore()
    async with running(home.log):
        pass
    assert await states(home.log) == await states(busy)


def filled_from(log: MemoryLog, count: int) -> MemoryLog:
    """The first records of its journals, of which none follows from another."""
    early = filled()
    cut = {f"{name}/{number}": min(count, 1) for name in STREAMS for number in range(PARTITIONS)}
    copy_up_to(log, early, cut)
    return early


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
