"""Backups in a bucket: each from an empty folder, by commands at the same time, killed ones."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.tunery.cli.backup.homes import Home, Killed, filled_from
from tests.unit.tunery.cli.journal.living import running, states
from tunery.cli._options import Address
from tunery.cli.backup.bucket import BucketFolder
from tunery.cli.backup.folder import BackupFolder
from tunery.cli.backup.pruning import Keep
from tunery.local.errors import LocalError
from tunery.runtime.blobs.abstract import Stored
from tunery.runtime.bus.memory import MemoryLog


@asynccontextmanager
async def opened(home: Home, subfolder: str, *, whole: bool = False) -> AsyncIterator[BucketFolder]:
    """A local copy, in which `home` takes its backups."""
    home.subfolder = subfolder
    with home.backup.locked():
        pass
    copy = BucketFolder(home.bucket, Address("backups", "tunery/"), home.backup)
    await copy.fetch(whole=whole)
    yield copy


async def sent(home: Home, log: MemoryLog, subfolder: str, keep: Keep | None = None) -> int:
    async with opened(home, subfolder) as copy:
        manifest = await home.take(log, keep=keep)
        await copy.send()
    return manifest.number


def stored(home: Home, kind: str) -> set[str]:
    return {key for key in home.bucket.bodies if key.startswith(f"tunery/{kind}/")}


async def test_backups_go_on_in_a_bucket_and_are_restored_from_it(
    home: Home, busy: MemoryLog
) -> None:
    home.store.get("gone")
    assert await sent(home, filled_from(busy, 5), "one") == 1
    first = stored(home, "segments")
    home.store.destroy("gone")
    assert await sent(home, busy, "two") == 2
    assert stored(home, "segments") > first
    assert not {path.name for path in (home.backup.path / "segments").iterdir()} & {
        key.rsplit("/", 1)[1] for key in first
    }, "what was sent before is not fetched"
    assert home.bucket.bodies["tunery/keys/gone.key"] == b""
    assert await sent(home, busy, "three", Keep(newest=1)) == 3
    assert [len(stored(home, kind)) for kind in ("manifests", "inventories")] == [1, 1]
    async with opened(home, "four", whole=True):
        await home.restore()
    async with running(home.log):
        pass
    assert await states(home.log) == await states(busy)


async def test_of_two_commands_at_the_same_time_one_counts(home: Home, busy: MemoryLog) -> None:
    await sent(home, filled_from(busy, 5), "one")
    async with opened(home, "two") as slow:
        await home.take(busy)
        assert await sent(home, busy, "three", Keep(newest=1)) == 2
        assert await sent(home, busy, "four") == 3
        with pytest.raises(LocalError, match=r"written to s3://backups/tunery/ meanwhile"):
            await slow.send()
    assert await sent(home, busy, "five") == 4
    async with opened(home, "six", whole=True):
        await home.restore()
    assert len(stored(home, "inventories")) == 3, "what the slow one left is deleted"


async def test_killed_command_leaves_the_backup_before_it(
    home: Home, busy: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sent(home, filled_from(busy, 5), "one")
    put = home.bucket.put

    async def killed(key: str, *arguments: Any, **how: Any) -> Stored:
        if key.startswith("tunery/heads/"):
            raise Killed
        return await put(key, *arguments, **how)

    with monkeypatch.context() as patch:
        patch.setattr(home.bucket, "put", killed)
        with pytest.raises(Killed):
            await sent(home, busy, "two")
    assert len(stored(home, "inventories")) == 2
    async with opened(home, "three", whole=True):
        backup = home.backup.open()
        assert backup is not None
        assert backup.newest.number == 1
        backup.check_files()
    assert await sent(home, busy, "four") == 2
    assert len(stored(home, "inventories")) == 2


async def test_lost_object_is_named(home: Home, busy: MemoryLog) -> None:
    await sent(home, busy, "one")
    lost = min(stored(home, "segments"))
    del home.bucket.bodies[lost]
    with pytest.raises(LocalError, match=rf"s3://backups/{lost} is missing"):
        async with opened(home, "two", whole=True):
            pass


async def test_bucket_without_backups_has_none(home: Home) -> None:
    async with opened(home, "one", whole=True) as copy:
        assert isinstance(copy.folder, BackupFolder)
        assert copy.folder.open() is None
