"""Backups that are removed from a chain: the newest one still has every record."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from schemas.topics import AUDIT
from schemas.units import DAY_MS
from tests.unit.tunery.cli.backup.homes import Home, Killed, filled_from, submit_many
from tests.unit.tunery.cli.journal.living import running, states
from tunery.cli.backup.folder import BackupFolder
from tunery.cli.backup.pruning import Keep, kept
from tunery.cli.backup.restoring import check
from tunery.runtime.bus.memory import MemoryLog


def numbers(home: Home) -> list[int]:
    backup = home.backup.open()
    assert backup is not None
    return [manifest.number for manifest in backup.manifests]


def files(home: Home, kind: str) -> set[Path]:
    return {*(home.backup.path / kind).iterdir()}


async def test_what_is_kept_restores_all_and_every_moment(home: Home, busy: MemoryLog) -> None:
    """Records behind a cut of before a restore were lost with it, and stay so."""
    busy.put(AUDIT.name, 0, b"k", b"{}")
    await home.take(filled_from(busy, 5))
    await home.take(busy)
    await home.restore()
    async with running(home.log):
        await submit_many(home.log, range(100, 103))
    third = await home.take(home.log, keep=Keep(newest=2))
    assert (third.number, numbers(home)) == (3, [2, 3])
    assert len(files(home, "manifests")) == len(files(home, "inventories")) == 2
    segments = files(home, "segments")
    await home.take(home.log, keep=Keep(newest=1))
    assert numbers(home) == [4]
    assert files(home, "segments") >= segments, "the newest needs all of them"
    there = Home(home.folder)
    assert (await there.restore()).missing_objects == []
    assert await states(there.log) == await states(home.log)
    early = Home(home.folder)
    restored = await early.restore(third.cut_ms - 1)
    assert 0 < restored.records < sum(check(home.backup, None).cut.values())


@pytest.mark.parametrize("written", range(3))
async def test_interrupted_removal_leaves_a_whole_chain(
    written: int, home: Home, busy: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for early in (1, 5):
        await home.take(filled_from(busy, early))
    await home.take(busy)
    left, add = written, BackupFolder.add

    def killed(*arguments: object) -> str:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        return add(*arguments)  # type: ignore[arg-type]  # as it was called

    with monkeypatch.context() as patch:
        patch.setattr(BackupFolder, "add", killed)
        with pytest.raises(Killed):
            await home.take(busy, keep=Keep(newest=3))
    check(home.backup, None)
    await home.take(busy, keep=Keep(newest=2))
    assert numbers(home) == [3, 4]
    await home.restore()
    async with running(home.log):
        pass
    assert await states(home.log) == await states(busy)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (Keep(newest=1), [6]),
        (Keep(daily=1), [6]),
        (Keep(daily=2), [4, 6]),
        (Keep(daily=9), [2, 4, 6]),
        (Keep(newest=3, daily=2), [4, 5, 6]),
        (Keep(newest=9), [1, 2, 3, 4, 5, 6]),
    ],
)
async def test_newest_ones_and_those_of_days_are_kept(
    keep: Keep, expected: list[int], home: Home, busy: MemoryLog
) -> None:
    manifest = await home.take(busy)
    days = [0, 0, 3, 3, 7, 7]
    chain = [
        replace(manifest, number=number, cut_ms=day * DAY_MS + number)
        for number, day in enumerate(days, 1)
    ]
    left = kept(chain, keep)
    assert [each.number for each in left] == expected
    assert sum(len(each.segments) for each in left) == len(days) * len(manifest.segments)
