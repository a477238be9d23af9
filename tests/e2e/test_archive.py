"""Old records of a hundred jobs move to object storage, with a kill; then everything is rebuilt."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from schemas.topics import STREAMS
from tests.e2e.rebuilding import CONTROL_PLANE, QUIET_S, Story, rebuild
from tests.e2e.stories import tunery
from tests.stacks import sweep, temporary_data_dir
from tunery.cli.backup.surroundings import storage_settings
from tunery.cli.replay.catalogue import AGGREGATES
from tunery.platform.blobs.s3 import S3Blobs
from tunery.runtime.bus.abstract import Log
from tunery.runtime.journal.snapshots import SLOTS, Snapshots
from tunery.runtime.tools.verify import replay_stream

pytestmark = pytest.mark.timeout(1_200)

JOBS: Final = 100
ARCHIVE: Final = ("journal", "archive", "--older-than", "0")


class Parts(NamedTuple):
    """The part of the ports of a host that snapshots need."""

    log: Log
    blobs: S3Blobs


async def test_archived_journals_verify_replay_back_up_and_rebuild_as_before() -> None:
    sweep()
    with temporary_data_dir() as folder:
        rebuilt = await rebuild(JOBS, folder, lambda _line: None, archived)
    assert list(rebuilt.differences) == ["from the log", "from the archive"]
    assert {stage: texts for stage, texts in rebuilt.differences.items() if texts} == {}
    assert rebuilt.webhooks == 1  # for the new job, and for none of the simulated ones


async def archived(story: Story, _say: Callable[[str], None]) -> None:
    folder = story.running.folders.root
    begun = time.monotonic()
    await story.running.add(*CONTROL_PLANE)
    await story.compare("from the log", 0, begun)
    before = await sound(folder)
    blobs = S3Blobs(storage_settings(story.running.folders, {}))
    await take_snapshots(story, blobs)
    await archive_after_a_kill(story)
    assert await sound(folder) == before
    await blobs.delete_below("snapshots/")
    await blobs.close()
    begun = await story.lose_database()
    await story.compare("from the archive", 0, begun)
    await asyncio.sleep(QUIET_S)
    story.count_webhooks("from the archive", 0)
    await story.one_more_webhook("ftjob-new-1")
    story.count_webhooks("from the archive", 1)
    _, records = await sound(folder)
    report = json.loads(await done(folder, "backup", str(folder / "copy"), "--json"))
    assert report["records"] == records
    await done(folder, "restore", str(folder / "copy"), "--check")
    await names_damage(folder)


async def done(folder: Path, *words: str) -> str:
    status, said = await tunery(folder, *words)
    assert status == 0, said
    return said


async def sound(folder: Path) -> tuple[dict[str, str], int]:
    """Heads of all journals, and how many records they have."""
    report = json.loads(await done(folder, "journal", "verify", "--json"))
    heads = {f"{each['stream']}/{each['partition']}": each["head"] for each in report["partitions"]}
    return heads, sum(each["records"] for each in report["partitions"])


async def take_snapshots(story: Story, blobs: S3Blobs) -> None:
    """Save both snapshots of each partition, as owners do after thousands of decisions."""
    parts: Any = Parts(story.log, blobs)
    for aggregate in (each for service in AGGREGATES.values() for each in service):
        for replay in await replay_stream(story.log, aggregate):
            if replay.accepted:
                snapshots = Snapshots(parts, aggregate, replay.partition)
                for _ in range(SLOTS):
                    await snapshots.save(replay.fold)


async def archive_after_a_kill(story: Story) -> None:
    """Kill the command with SIGKILL after its first segment; then run it again."""
    folder = story.running.folders.root
    objects = folder / "s3" / "objects" / "tunery-archive"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tunery.cli.main", *ARCHIVE, "--data-dir", str(folder)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    while not segments(objects):
        assert process.returncode is None, "it ended without a segment"
        await asyncio.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    left = len(segments(objects))
    reports = json.loads(await done(folder, *ARCHIVE, "--json"))
    assert sum(each["segments"] for each in reports) > 0
    assert len(segments(objects)) > left
    for each in reports:
        topic = STREAMS[each["stream"]].journal.name
        start, _ = await story.log.kept.bounds(topic, each["partition"])
        assert start == each["kept"]
        assert start > 0 or "0 of 2 snapshots" in each["why"], each
    assert {each["stream"] for each in reports if each["kept"]} >= {"account", "job", "pool"}
    again = json.loads(await done(folder, *ARCHIVE, "--json"))
    assert sum(each["records"] for each in again) == 0


def segments(objects: Path) -> list[Path]:
    return sorted(objects.glob("*/*/*.jsonl.gz"))


async def names_damage(folder: Path) -> None:
    """`journal verify` of a segment with one flipped bit, and of one that is not there."""
    path = segments(folder / "s3" / "objects" / "tunery-archive")[0]
    body = path.read_bytes()
    for wrong, why in ((bytes([body[0] ^ 1]) + body[1:], "it was changed"), (None, "lacks")):
        path.unlink() if wrong is None else path.write_bytes(wrong)
        status, said = await tunery(folder, "journal", "verify")
        assert status == 1, said
        assert why in said
        assert path.parent.parent.name in said
        assert "copy it back" in said
        path.write_bytes(body)
