"""Backups that are taken under load, again, of another installation, and after a kill."""

import asyncio
from typing import Final

import msgspec
import pytest

from schemas.levels import LEVEL
from schemas.topics import STREAMS
from tests.unit.tunery.cli.backup.homes import (
    PLAYED,
    Home,
    Killed,
    copy_up_to,
    filled_from,
    ids,
    rewrite,
    strangers,
    submit_many,
    tallies,
)
from tests.unit.tunery.cli.journal.journals import OWNERS, filled
from tests.unit.tunery.cli.journal.living import lived, running, states
from tunery.cli.backup.folder import JOURNALS, BackupFolder
from tunery.cli.backup.restoring import check
from tunery.local.errors import LocalError
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.journal.reader import START
from tunery.runtime.tools.inspection import missing_causes

JOBS: Final = 40


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
        assert strangers(there) == set()
    await home.restore()
    async with running(home.log):
        pass
    assert await states(home.log) == await states(log)


async def test_backups_write_only_what_is_new_and_go_on_after_a_restore(
    home: Home, busy: MemoryLog
) -> None:
    first = await home.take(busy)
    assert {segment.stream for segment in first.segments} >= PLAYED
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


async def test_folder_of_another_installation_is_refused(home: Home, busy: MemoryLog) -> None:
    await home.take(busy)
    with pytest.raises(LocalError, match="choose an empty folder"):
        await home.take(filled(OWNERS.name))
    with pytest.raises(LocalError, match="has no backup"):
        check(BackupFolder(home.folder / "other"), None)


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


async def test_backup_of_fewer_journals_goes_on_and_restores_in_a_release_that_has_more(
    home: Home, busy: MemoryLog
) -> None:
    """A stream, and a partition of each stream, are newer than the backup."""
    early = filled()
    known = [name for name in JOURNALS if not name.startswith("dataset/") and name[-1] != "7"]
    copy_up_to(busy, early, dict.fromkeys(known, 1))
    whole = await home.take(early)
    older = msgspec.structs.replace(whole, ends={name: whole.ends[name] for name in known})
    rewrite(home, older)
    there = Home(home.folder)
    assert (await there.restore()).records == sum(end.offset for end in older.ends.values())
    added = await home.take(busy)
    assert added.ends.keys() == set(JOURNALS)
    until = min(r.timestamp for r in busy.topics[STREAMS["dataset"].journal.name][7].records)
    moment = Home(home.folder)
    await moment.restore(until)
    await home.restore()
    async with running(home.log):
        pass
    assert await states(home.log) == await states(busy)


async def test_older_release_refuses_the_backup_of_a_newer_one(home: Home, busy: MemoryLog) -> None:
    manifest = await home.take(busy)
    ends = {**manifest.ends, "rocket/0": START}
    for newer in ({"level": LEVEL + 1}, {"ends": ends}):
        rewrite(home, msgspec.structs.replace(manifest, release="9.1", **newer))
        for read in (home.take(busy), asyncio.to_thread(check, home.backup, None)):
            with pytest.raises(
                LocalError, match=r"(?s)(level \d|rocket/0).*release 9\.1 or a newer"
            ):
                await read
