"""Folder of a backup: segments of the log, and a chain of manifests, each of which names the one
before it.

Every file has a part of its SHA-256 in its name and appears complete or not at all. A file that is
not in the chain is what an interrupted backup left, or one that was removed, and the next one
deletes it. Keys alone change in place: those of erased tenants must not be in any backup.
"""

import contextlib
import fcntl
import gzip
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

import msgspec
from msgspec import Struct

from schemas.levels import LEVEL
from schemas.streams import PARTITIONS
from schemas.topics import AUDIT_PARTITION, STREAMS
from schemas.units import Ms
from tunery.local.errors import LocalError
from tunery.platform.blobs.files import file_sha256
from tunery.runtime.bus.abstract import Commit, Record
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.journal.reader import START, Position
from tunery.runtime.tools.archive import ArchiveError, ArchiveReader

FORMAT: Final = 2  # 1: before backups could be removed from a chain
#: of this release, by stream/partition
JOURNALS: Final = tuple(f"{name}/{number}" for name in STREAMS for number in range(PARTITIONS))
KINDS: Final = ("segments", "inventories", "manifests")
AUDIT_NAME: Final = "audit"  # of segments of the audit topic
HASH_CHARS: Final = 32  # of a SHA-256, in names of files
COMPRESSION: Final = 6
DAMAGED: Final = "restore from a copy of the backup, or from an earlier one with --until"


class LogSegment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records of a stream that one backup has added.

    Those from the cut of that backup on are in the next segment, too, and count only there.
    """

    stream: str
    file: str
    #: where the cut was in each partition; None: it is that of the manifest
    ends: dict[int, int] | None = None


class Inventory(Struct, frozen=True, kw_only=True):
    """List of the objects that object storage held; a line each: name, size, SHA-256."""

    file: str
    objects: int
    bytes: int


class Manifest(Struct, frozen=True, kw_only=True):
    """One backup: where the cut is, and what it has added to those before it."""

    format: int
    number: int
    previous: str | None  # name of the manifest before it
    release: str  # of Tunery
    level: int  # highest level of the log; an older release could not read the records
    cut_ms: Ms  # time of the newest record by which the cut was chosen
    ends: dict[str, Position]  # by stream/partition, with the head of the hash chain
    segments: tuple[LogSegment, ...]
    audit_end: int
    # positions of reactions (`service/stream`, partition): offset and metadata. Those of which
    # everything was decided within the cut; without them all reactions are sent again
    positions: dict[str, dict[int, tuple[int, str]]]
    keys: dict[str, str | None]  # tenant → root key that wraps its data key; None: erased
    inventory: Inventory | None

    def end(self, name: str) -> Position:
        """Return where the cut is in a journal: at its start, where the backup is older than it."""
        return self.ends.get(name, START)

    def ends_of(self, segment: LogSegment) -> dict[int, int]:
        """Return where the records of a segment of this backup end to count, by partition."""
        if segment.ends is not None:
            return segment.ends
        if segment.stream == AUDIT_NAME:
            return {AUDIT_PARTITION: self.audit_end}
        return {n: self.end(f"{segment.stream}/{n}").offset for n in range(PARTITIONS)}

    @property
    def files(self) -> list[str]:
        """Segments and inventory of this backup."""
        own = [segment.file for segment in self.segments]
        return own if self.inventory is None else [*own, self.inventory.file]


@dataclass(frozen=True)
class Backup:
    """A manifest with all that it follows from, oldest first."""

    folder: "BackupFolder"
    manifests: tuple[Manifest, ...]
    name: str  # of the newest manifest

    @property
    def newest(self) -> Manifest:
        return self.manifests[-1]

    @property
    def files(self) -> set[str]:
        """Files of a backup without keys."""
        names = (*(manifest.previous for manifest in self.manifests[1:]), self.name)
        files = {file for manifest in self.manifests for file in manifest.files}
        return files | {f"manifests/{name}" for name in names}

    def within(self, cut: Mapping[str, int]) -> Manifest | None:
        """Return the newest manifest of which everything is within a cut."""
        for manifest in self.manifests[::-1]:
            if all(manifest.end(name).offset <= end for name, end in cut.items()):
                return manifest
        return None

    def records(self, stream: str) -> Iterator[Record]:
        """All records of a stream (or `AUDIT_NAME`), each once. Raises LocalError."""
        for manifest in self.manifests:
            for segment in manifest.segments:
                if segment.stream == stream:
                    yield from self._read(manifest, segment)

    def _read(self, manifest: Manifest, segment: LogSegment) -> Iterator[Record]:
        path, ends = self.folder.path / segment.file, manifest.ends_of(segment)
        try:
            with gzip.open(path) as file:
                for record in ArchiveReader(cast("IO[bytes]", file)).records():
                    if record.offset < ends[record.partition]:
                        yield record
        except (ArchiveError, OSError, EOFError, zlib.error) as error:
            raise LocalError(f"{path} cannot be read: {error}", DAMAGED) from error

    def check_files(self) -> None:
        """Compare every file with its hash. Raises LocalError, which names the first bad one."""
        for manifest in self.manifests:
            for file in manifest.files:
                self.folder.check(file)

    def inventory(self, manifest: Manifest) -> Iterator[tuple[str, int]]:
        """Names and sizes of the objects that a manifest lists. Raises LocalError."""
        if manifest.inventory is None:
            return
        with gzip.open(self.folder.path / manifest.inventory.file) as file:
            for line in file:
                name, size, _ = msgspec.json.decode(line, type=tuple[str, int, str | None])
                yield name, size


class BackupFolder:
    """A folder with backups of one installation."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def keys(self) -> Path:
        return self.path / "keys"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, and be the only one that writes to it. Raises LocalError."""
        try:
            for name in (*KINDS, "keys"):
                (self.path / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LocalError(
                f"{self.path} cannot be written: {error.strerror}", "choose another folder"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise LocalError(
                f"another `tunery backup` writes to {self.path}", "wait until it has ended"
            ) from None
        finally:
            os.close(handle)

    def open(self) -> Backup | None:
        """Return the newest backup; None: there is none. Raises LocalError for a damaged one."""
        names = sorted(path.name for path in (self.path / "manifests").glob("*.json"))
        if not names:
            return None
        manifests: list[Manifest] = []
        following: str | None = names[-1]
        while following is not None:
            manifest = self.manifest(following)
            manifests.append(manifest)
            following = manifest.previous
        return Backup(self, tuple(manifests[::-1]), names[-1])

    def manifest(self, name: str) -> Manifest:
        """Raises LocalError for one that is damaged, or of a newer release."""
        file = f"manifests/{name}"
        self.check(file)
        body = (self.path / file).read_bytes()
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            number = msgspec.json.decode(fields["format"], type=int)
            if number > FORMAT:
                raise LocalError(
                    f"{self.path / file} has format {number}, and this release reads {FORMAT}",
                    "use the release that made the backup, or a newer one",
                )
            manifest = msgspec.json.decode(body, type=Manifest)
        except (KeyError, *MALFORMED) as error:
            raise LocalError(f"{self.path / file} is no manifest: {error}", DAMAGED) from error
        _refuse_newer(manifest)
        return manifest

    def check(self, file: str) -> None:
        """Compare a file with the hash in its name. Raises LocalError."""
        path = self.path / file
        try:
            digest = file_sha256(path)
        except OSError as error:
            raise LocalError(f"{path} cannot be read: {error.strerror}", DAMAGED) from error
        if digest[:HASH_CHARS] not in path.name:
            raise LocalError(
                f"{path} was changed: its SHA-256 is another than its name says", DAMAGED
            )

    @contextlib.contextmanager
    def part(self, stem: str) -> Iterator[IO[bytes]]:
        """Write a compressed file that does not count yet; `complete` gives it its name."""
        with (self.path / f"{stem}.part").open("wb") as raw:
            with gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0) as file:
                yield cast("IO[bytes]", file)
            raw.flush()
            os.fsync(raw.fileno())

    def complete(self, stem: str) -> str:
        """Name a file after its content; return the name."""
        return self._put(self.path / f"{stem}.part", stem, ".jsonl.gz")

    def add(self, manifest: Manifest) -> str:
        """Write a manifest, with which its backup begins to exist; return its name."""
        stem = f"manifests/{manifest.number:06}"
        part = self.path / f"{stem}.part"
        with part.open("wb") as file:
            file.write(msgspec.json.encode(manifest))
            file.flush()
            os.fsync(file.fileno())
        return Path(self._put(part, stem, ".json")).name

    def _put(self, part: Path, stem: str, suffix: str) -> str:
        name = f"{stem}-{file_sha256(part)[:HASH_CHARS]}{suffix}"
        target = self.path / name
        part.replace(target)
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return name

    def sweep(self, backup: Backup | None) -> None:
        """Delete what is not in the chain of a backup."""
        named = backup.files if backup else set[str]()
        for kind in KINDS:
            for path in (self.path / kind).iterdir():
                if f"{kind}/{path.name}" not in named:
                    path.unlink()


def _refuse_newer(manifest: Manifest) -> None:
    """Raises LocalError for a backup that has what this release cannot read."""
    beyond = None
    if manifest.level > LEVEL:
        beyond = f"at level {manifest.level} of the log, and this release reads up to level {LEVEL}"
    elif unknown := sorted(manifest.ends.keys() - set(JOURNALS)):
        beyond = f"with the journal {unknown[0]}, which this release does not know"
    if beyond is not None:
        raise LocalError(
            f"the backup was made by release {manifest.release} {beyond}",
            f"install release {manifest.release} or a newer one, and use that",
        )


def commits_of(saved: Mapping[int, tuple[int, str]], partitions: int) -> dict[int, Commit]:
    """Positions as the log keeps them; the start for those that are not saved."""
    start = (START.offset, START.dump())
    return {number: Commit(*saved.get(number, start)) for number in range(partitions)}
