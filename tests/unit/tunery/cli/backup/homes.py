"""An installation in memory that is backed up: its folders, its journals, and what to ask of it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from schemas.streams import PARTITIONS
from schemas.topics import STREAMS
from tests.histories.recorder import TENANT, Recorder
from tests.histories.replaying import AGGREGATES
from tests.histories.stories import job
from tests.unit.tunery.cli.journal.journals import empty, filled
from tests.unit.tunery.cli.journal.living import events
from tunery.cli.backup.folder import BackupFolder, Manifest
from tunery.cli.backup.pruning import Keep
from tunery.cli.backup.restoring import Allowed, RestoreReport, check, restore
from tunery.cli.backup.taking import take
from tunery.cli.journal import scan
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots, create_root
from tunery.runtime.blobs.abstract import Listed
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender

PLAYED: Final = STREAMS.keys() - {"session"}  # no training loop of a client runs there
OBJECT: Final = f"t/acme/files/ab/{'ab' * 32}.jsonl"


@dataclass
class Home:
    """Folders of an installation and of its backup, and the objects of its storage."""

    folder: Path
    objects: dict[str, int] = field(default_factory=lambda: {OBJECT: 7, "snapshots/job/1": 3})
    rows: str | None = None
    raised: dict[str, int] = field(default_factory=dict)
    log: MemoryLog = field(default_factory=empty)
    subfolder: str = "backup"  # name of the folder of the backup
    bucket: MemoryBlobs = field(default_factory=MemoryBlobs)

    def __post_init__(self) -> None:
        create_root(self.roots)
        self.store.get(TENANT)

    @property
    def backup(self) -> BackupFolder:
        return BackupFolder(self.folder / self.subfolder)

    @property
    def keystore(self) -> Path:
        return self.folder / "keystore"

    @property
    def roots(self) -> Path:
        return self.folder / "roots"

    @property
    def store(self) -> DirectoryKeyStore:
        return DirectoryKeyStore(self.keystore, Roots(self.roots))

    async def list_objects(self) -> AsyncIterator[Listed]:
        for name, size in self.objects.items():
            yield Listed(name, size, 0)

    async def rows_in(self) -> str | None:
        return self.rows

    async def raise_levels(self, levels: Mapping[str, int]) -> None:
        self.raised.update(levels)

    async def take(
        self, log: MemoryLog, settle_s: float = 0.0, keep: Keep | None = None
    ) -> Manifest:
        with self.backup.locked():
            return await take(
                log,
                self.backup,
                self.keystore,
                self.list_objects,
                lambda _: asyncio.sleep(settle_s),
                keep,
            )

    async def restore(self, until_ms: int | None = None, **allowed: bool) -> RestoreReport:
        """Into the log of this home, and a key store beside the one that was backed up."""
        return await restore(
            check(self.backup, until_ms),
            self,
            self.folder / "restored",
            self.roots,
            Allowed(**allowed),
            lambda _: None,
        )


def ids(log: MemoryLog, stream: str, kind: str, path: str) -> set[str]:
    """A field of all events of a kind."""
    values = set()
    for event in events(log, stream):
        if event["type"] == kind:
            value: Any = event
            for name in path.split("."):
                value = value[name]
            values.add(value)
    return values


def strangers(log: MemoryLog) -> set[str]:
    """Jobs that the pool would train, and that the stream of jobs does not have."""
    placed = ids(log, "pool", "PlacementQueued.v1", "placement.job_id")
    return placed - ids(log, "job", "JobSubmitted.v1", "job_id")


async def submit_many(log: MemoryLog, numbers: range) -> None:
    story, sender = Recorder("load", AGGREGATES["account"], TENANT), Sender(log, STREAMS)
    for number in numbers:
        await sender.send("job", TENANT, TENANT, job.submit(story, number))
        await asyncio.sleep(0.002)


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


def filled_from(log: MemoryLog, count: int) -> MemoryLog:
    """The first records of its journals, of which none follows from another."""
    early = filled()
    cut = {f"{name}/{number}": min(count, 1) for name in STREAMS for number in range(PARTITIONS)}
    copy_up_to(log, early, cut)
    return early


def rewrite(home: Home, manifest: Manifest) -> None:
    shutil.rmtree(home.backup.path / "manifests")
    (home.backup.path / "manifests").mkdir()
    home.backup.add(manifest)


class Killed(BaseException):
    """Nothing of the command runs after it, as after a kill."""
